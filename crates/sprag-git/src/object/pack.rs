//! Packs: how objects travel.

use std::collections::HashMap;
use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::bufread::ZlibDecoder;
use flate2::write::ZlibEncoder;

use super::{Format, Kind, Object, hex};
use crate::wire::too_large;

/// No record is larger, nor anything else that we ask for.
const OBJECT: usize = 16 << 20;
/// All that a pack unpacks to, with its deltas, is no larger.
const UNPACKED: usize = 64 << 20;
/// No pack that we ask for has more objects.
const OBJECTS: usize = 100_000;

/// Writes a pack.
pub(crate) fn write_pack(objects: &[Object], format: Format) -> io::Result<Vec<u8>> {
    let count = u32::try_from(objects.len()).map_err(io::Error::other)?;
    let mut pack = [b"PACK".as_slice(), &2_u32.to_be_bytes(), &count.to_be_bytes()].concat();
    for object in objects {
        let kind: u8 = match object.kind {
            Kind::Commit => 1,
            Kind::Tree => 2,
            Kind::Blob => 3,
            Kind::Tag => 4,
        };
        let mut size = object.data.len();
        let mut byte = kind << 4 | low(size, 0x0f);
        size >>= 4;
        while size > 0 {
            pack.push(byte | 0x80);
            byte = low(size, 0x7f);
            size >>= 7;
        }
        pack.push(byte);
        let mut encoder = ZlibEncoder::new(pack, Compression::default());
        encoder.write_all(&object.data)?;
        pack = encoder.finish()?;
    }
    let trailer = format.hash(&[&pack]);
    pack.extend(trailer);
    Ok(pack)
}

/// Reads a pack: all of its objects by their names.
pub(crate) fn read_pack(pack: &[u8], format: Format) -> io::Result<HashMap<String, Object>> {
    let end = pack.len().checked_sub(format.bytes()).ok_or_else(|| bad("it is too short"))?;
    let (body, trailer) = pack.split_at(end);
    if format.hash(&[body]) != trailer {
        return Err(bad("its hash is wrong"));
    }
    let mut reader = Reader { body, at: 0, format, room: UNPACKED };
    if reader.take(8)? != b"PACK\0\0\0\x02" {
        return Err(bad("it has no header"));
    }
    let count = reader.take(4)?.iter().fold(0_usize, |count, byte| count << 8 | usize::from(*byte));
    if count > OBJECTS {
        return Err(too_large(format!("the pack has more than {OBJECTS} objects")));
    }
    let mut unpacked = Unpacked { format, by_place: HashMap::new(), found: HashMap::new() };
    let mut waiting = Vec::new();
    for _ in 0..count {
        let place = reader.at;
        match reader.object()? {
            Packed::Whole(object) => unpacked.keep(object, place),
            Packed::Delta(base, delta) => waiting.push((place, base, delta)),
        }
    }
    // A base may itself be a delta, and stand behind what it is the base of.
    while !waiting.is_empty() {
        let before = waiting.len();
        for (place, base, delta) in std::mem::take(&mut waiting) {
            match unpacked.base(&base) {
                Some(object) => {
                    let data = apply(&object.data, &delta, &mut reader.room)?;
                    let object = Object { kind: object.kind, data };
                    unpacked.keep(object, place);
                }
                None => waiting.push((place, base, delta)),
            }
        }
        if waiting.len() == before {
            return Err(bad("it builds on objects that are not in it"));
        }
    }
    Ok(unpacked.found)
}

/// The objects of a pack, by where they stand in it and by name.
struct Unpacked {
    format: Format,
    by_place: HashMap<usize, String>,
    found: HashMap<String, Object>,
}

impl Unpacked {
    fn keep(&mut self, object: Object, place: usize) {
        let name = object.oid(self.format);
        self.by_place.insert(place, name.clone());
        self.found.insert(name, object);
    }

    fn base(&self, base: &Base) -> Option<&Object> {
        let name = match base {
            Base::Place(place) => self.by_place.get(place)?,
            Base::Name(name) => name,
        };
        self.found.get(name)
    }
}

/// Takes so many bytes from the room that is left.
fn claim(room: &mut usize, size: usize) -> io::Result<()> {
    if size > OBJECT {
        return Err(too_large(format!("an object is larger than {} MiB", OBJECT >> 20)));
    }
    *room = room.checked_sub(size).ok_or_else(|| {
        too_large(format!("the pack unpacks to more than {} MiB", UNPACKED >> 20))
    })?;
    Ok(())
}

enum Packed {
    Whole(Object),
    Delta(Base, Vec<u8>),
}

enum Base {
    Place(usize),
    Name(String),
}

struct Reader<'a> {
    body: &'a [u8],
    at: usize,
    format: Format,
    /// How many bytes may still be unpacked.
    room: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> io::Result<&'a [u8]> {
        let taken = self.body.get(self.at..).and_then(|rest| rest.get(..count));
        self.at += count;
        taken.ok_or_else(|| bad("it ends too early"))
    }

    fn byte(&mut self) -> io::Result<u8> {
        Ok(self.take(1)?[0])
    }

    fn object(&mut self) -> io::Result<Packed> {
        let place = self.at;
        let first = self.byte()?;
        let mut size = usize::from(first & 0x0f);
        let (mut more, mut shift) = (first & 0x80 != 0, 4);
        while more {
            let byte = self.byte()?;
            size |= usize::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            more = byte & 0x80 != 0;
            shift += 7;
        }
        claim(&mut self.room, size)?;
        let kind = match first >> 4 & 7 {
            1 => Kind::Commit,
            2 => Kind::Tree,
            3 => Kind::Blob,
            4 => Kind::Tag,
            6 => {
                let base = place.checked_sub(self.distance()?);
                let base = base.ok_or_else(|| bad("a delta in it has no base"))?;
                return Ok(Packed::Delta(Base::Place(base), self.inflate(size)?));
            }
            7 => {
                let base = hex(self.take(self.format.bytes())?);
                return Ok(Packed::Delta(Base::Name(base), self.inflate(size)?));
            }
            _ => return Err(bad("it holds an object of no kind")),
        };
        Ok(Packed::Whole(Object { kind, data: self.inflate(size)? }))
    }

    fn distance(&mut self) -> io::Result<usize> {
        let mut byte = self.byte()?;
        let mut distance = usize::from(byte & 0x7f);
        while byte & 0x80 != 0 {
            byte = self.byte()?;
            distance = (distance + 1).saturating_mul(128) + usize::from(byte & 0x7f);
        }
        Ok(distance)
    }

    fn inflate(&mut self, size: usize) -> io::Result<Vec<u8>> {
        let rest = self.body.get(self.at..).unwrap_or_default();
        // One byte more than it says tells whether it says the truth.
        let mut decoder = ZlibDecoder::new(rest).take(size as u64 + 1);
        let mut data = Vec::with_capacity(size + 1);
        decoder.read_to_end(&mut data)?;
        self.at += usize::try_from(decoder.get_ref().total_in()).map_err(io::Error::other)?;
        if data.len() == size { Ok(data) } else { Err(bad("an object in it is cut off")) }
    }
}

/// Makes an object from its base.
fn apply(base: &[u8], delta: &[u8], room: &mut usize) -> io::Result<Vec<u8>> {
    let mut bytes = delta.iter().copied();
    let mut length = || {
        let (mut length, mut shift) = (0_usize, 0);
        for byte in bytes.by_ref() {
            length |= usize::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        length
    };
    let (from, to) = (length(), length());
    if from != base.len() {
        return Err(bad("a delta in it does not fit its base"));
    }
    claim(room, to)?;
    let short = || bad("a delta in it is cut off");
    let mut data = Vec::with_capacity(to);
    while let Some(order) = bytes.next() {
        if order & 0x80 == 0 {
            let count = usize::from(order);
            let literal: Vec<u8> = bytes.by_ref().take(count).collect();
            if literal.len() < count || count == 0 {
                return Err(short());
            }
            data.extend(literal);
        } else if data.len() > to {
            return Err(short());
        } else {
            let mut number = |bits: std::ops::Range<u32>| {
                bits.clone().filter(|bit| order >> bit & 1 == 1).try_fold(0_usize, |number, bit| {
                    let byte = bytes.next().ok_or_else(short)?;
                    Ok::<_, io::Error>(number | usize::from(byte) << (8 * (bit - bits.start)))
                })
            };
            let (offset, count) = (number(0..4)?, number(4..7)?);
            let count = if count == 0 { 0x10000 } else { count };
            let copied = base.get(offset..).and_then(|rest| rest.get(..count));
            data.extend(copied.ok_or_else(short)?);
        }
    }
    if data.len() == to { Ok(data) } else { Err(short()) }
}

/// The lowest bits of a number.
fn low(number: usize, mask: u8) -> u8 {
    u8::try_from(number & usize::from(mask)).unwrap_or(mask)
}

fn bad(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a pack is not understood: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Git;

    fn commit(text: &str) -> Object {
        Object { kind: Kind::Commit, data: text.as_bytes().to_vec() }
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        for format in [Format::Sha1, Format::Sha256] {
            let large = "x".repeat(100_000);
            let objects = [commit("a"), Object::EMPTY_TREE, commit(&large)];
            let found = read_pack(&write_pack(&objects, format).unwrap(), format).unwrap();
            assert_eq!(found.len(), 3);
            assert!(objects.iter().all(|object| found[&object.oid(format)] == *object));
        }
    }

    #[test]
    fn a_damaged_pack_is_refused() {
        let pack = write_pack(&[commit("abc")], Format::Sha1).unwrap();
        for at in 0..pack.len() {
            let mut damaged = pack.clone();
            damaged[at] ^= 1;
            assert!(read_pack(&damaged, Format::Sha1).is_err());
            assert!(read_pack(&pack[..at], Format::Sha1).is_err());
        }
    }

    /// Numbers as deltas and the heads of objects have them, low bits first.
    fn varint(mut number: usize, mut first_bits: u32, mut byte: u8) -> Vec<u8> {
        let mut bytes = Vec::new();
        loop {
            byte |= low(number, (1 << first_bits) - 1);
            number >>= first_bits;
            first_bits = 7;
            bytes.push(byte | if number > 0 { 0x80 } else { 0 });
            if number == 0 {
                return bytes;
            }
            byte = 0;
        }
    }

    fn packed(objects: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
        let count = u32::try_from(objects.len()).unwrap();
        let mut pack = [b"PACK".as_slice(), &2_u32.to_be_bytes(), &count.to_be_bytes()].concat();
        for (head, data) in objects {
            pack.extend(head);
            let mut encoder = ZlibEncoder::new(pack, Compression::fast());
            encoder.write_all(data).unwrap();
            pack = encoder.finish().unwrap();
        }
        let trailer = Format::Sha1.hash(&[&pack]);
        pack.extend(trailer);
        pack
    }

    #[track_caller]
    fn is_too_large(pack: &[u8]) {
        let error = read_pack(pack, Format::Sha1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge, "{error}");
    }

    /// A few bytes that unpack to many.
    #[test]
    fn a_pack_that_unpacks_to_too_much_is_refused() {
        let blob = |size: usize| (varint(size, 4, 3 << 4), vec![0; size]);
        is_too_large(&packed(&[blob(OBJECT + 1)]));
        // One object, and deltas that copy it whole, 64 KiB an order.
        let size = 8 << 20;
        let copies =
            (0..size >> 16).flat_map(|at: usize| [0x80 | 0x07, 0, 0, u8::try_from(at).unwrap()]);
        let orders: Vec<u8> =
            varint(size, 7, 0).into_iter().chain(varint(size, 7, 0)).chain(copies).collect();
        let name = Object { kind: Kind::Blob, data: vec![0; size] }.oid(Format::Sha1);
        let name: Vec<u8> =
            (0..20).map(|at| u8::from_str_radix(&name[2 * at..2 * at + 2], 16).unwrap()).collect();
        let delta = || ([varint(orders.len(), 4, 7 << 4), name.clone()].concat(), orders.clone());
        let one = packed(&[blob(size), delta()]);
        assert_eq!(read_pack(&one, Format::Sha1).unwrap().len(), 1);
        let bomb = packed(&[vec![blob(size)], (0..100).map(|_| delta()).collect()].concat());
        assert!(bomb.len() < 1 << 20);
        is_too_large(&bomb);
        // More objects than anybody has.
        let mut many = packed(&[]);
        many.truncate(8);
        many.extend(u32::MAX.to_be_bytes());
        let trailer = Format::Sha1.hash(&[&many]);
        many.extend(trailer);
        is_too_large(&many);
    }

    /// What an object says about its size is not believed.
    #[test]
    fn an_object_that_is_larger_than_it_says_is_refused() {
        let pack = packed(&[(varint(1, 4, 3 << 4), vec![0; OBJECT])]);
        let error = read_pack(&pack, Format::Sha1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    }

    /// Packs as git makes them, with deltas by place and by name.
    #[test]
    fn the_packs_of_git_are_unpacked() {
        let folder = tempfile::tempdir().unwrap();
        let git = Git::new().repository(folder.path());
        git.ok(["init", "--quiet", "--bare"]).unwrap();
        let text = |n: u32| {
            let lines = (0..500).map(|i| format!("{}\n", i * i)).collect::<String>();
            format!("{n}\n{lines}{n}\n")
        };
        let store = |n| {
            let text = text(n);
            let stored = git.ok_with(["hash-object", "-w", "--stdin"], text.as_bytes()).unwrap();
            (stored.text(), text)
        };
        let blobs: Vec<_> = (0..5).map(store).collect();
        let names = blobs.iter().map(|(name, _)| format!("{name}\n")).collect::<String>();
        for offsets in ["--delta-base-offset", "--no-progress"] {
            let args = ["pack-objects", "--stdout", "--no-reuse-delta", "-q", offsets];
            let pack = git.ok_with(args, names.as_bytes()).unwrap().stdout;
            assert!(pack.len() < 2 * blobs[0].1.len(), "there is no delta in it");
            let found = read_pack(&pack, Format::Sha1).unwrap();
            for (name, text) in &blobs {
                assert_eq!(found[name].data, text.as_bytes());
            }
        }
    }
}
