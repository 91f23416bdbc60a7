//! The protocol of Redis: words out, [`Value`]s in.

use std::fmt;

/// What lists may hold lists of: far more than any answer we ask for.
const DEEPEST: usize = 8;
/// No answer of ours is longer, so a longer one is none.
const LONGEST: usize = 512 << 20;

/// An answer, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Nil,
    Int(i64),
    Text(Vec<u8>),
    List(Vec<Self>),
    /// The server says no.
    No(Refused),
}

/// Why the server says no: a code such as `NOSCRIPT`, and what it has to say about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) code: String,
    pub(crate) said: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code, self.said)
    }
}

impl std::error::Error for Refused {}

/// Bytes that are no answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Strange;

/// Writes one request.
pub(crate) fn write(words: &[impl AsRef<[u8]>], out: &mut Vec<u8>) {
    write_size(b'*', words.len(), out);
    for word in words {
        let word = word.as_ref();
        write_size(b'$', word.len(), out);
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// By hand: each request has a dozen of them, and somebody waits for it.
fn write_size(kind: u8, size: usize, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 10] = b"0123456789";
    let from = out.len() + 1;
    out.push(kind);
    let mut left = size;
    loop {
        out.push(DIGITS[left % 10]);
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out[from..].reverse();
    out.extend_from_slice(b"\r\n");
}

/// Reads one answer from the start of `bytes`, and how long it is; nothing if more has to come.
pub(crate) fn read(bytes: &[u8]) -> Result<Option<(Value, usize)>, Strange> {
    let mut reader = Reader { bytes, at: 0 };
    Ok(reader.value(DEEPEST)?.map(|value| (value, reader.at)))
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: usize) -> Result<Option<Value>, Strange> {
        let Some(line) = self.line()? else { return Ok(None) };
        let (kind, rest) = line.split_first().ok_or(Strange)?;
        Ok(Some(match kind {
            b'+' => Value::Text(rest.to_vec()),
            b'-' => Value::No(refused(rest)),
            b':' => Value::Int(number(rest)?),
            b'$' | b'*' if rest == b"-1" => Value::Nil,
            b'$' => match self.text(length(rest)?)? {
                Some(text) => Value::Text(text.to_vec()),
                None => return Ok(None),
            },
            b'*' => {
                let depth = depth.checked_sub(1).ok_or(Strange)?;
                let mut list = Vec::new();
                for _ in 0..length(rest)? {
                    match self.value(depth)? {
                        Some(value) => list.push(value),
                        None => return Ok(None),
                    }
                }
                Value::List(list)
            }
            _ => return Err(Strange),
        }))
    }

    fn line(&mut self) -> Result<Option<&'a [u8]>, Strange> {
        let left = &self.bytes[self.at..];
        match left.iter().position(|byte| *byte == b'\n') {
            Some(end) => {
                self.at += end + 1;
                left[..end].strip_suffix(b"\r").map(Some).ok_or(Strange)
            }
            None if left.len() > 1 << 16 => Err(Strange),
            None => Ok(None),
        }
    }

    fn text(&mut self, length: usize) -> Result<Option<&'a [u8]>, Strange> {
        let left = &self.bytes[self.at..];
        if left.len() < length + 2 {
            return Ok(None);
        }
        self.at += length + 2;
        if &left[length..length + 2] == b"\r\n" { Ok(Some(&left[..length])) } else { Err(Strange) }
    }
}

fn refused(line: &[u8]) -> Refused {
    let line = String::from_utf8_lossy(line);
    let line = raised_in_script(&line).unwrap_or(&line);
    let (code, said) = line.split_once(' ').unwrap_or((line, ""));
    Refused { code: code.to_owned(), said: said.to_owned() }
}

/// What a command in a script was refused with. Before 7.0 a server wraps it up: `ERR Error running
/// script (call to f_...): @user_script: 12: -OOM command not allowed`, with or without the dash.
fn raised_in_script(line: &str) -> Option<&str> {
    let mut rest = line.strip_prefix("ERR Error running script ")?;
    while let Some((word, behind)) = rest.split_once(' ') {
        let code = word.strip_prefix('-').unwrap_or(word);
        if code.len() > 2 && code.bytes().all(|letter| letter.is_ascii_uppercase()) {
            return rest.strip_prefix('-').or(Some(rest));
        }
        rest = behind;
    }
    None
}

fn number(digits: &[u8]) -> Result<i64, Strange> {
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).ok_or(Strange)
}

fn length(digits: &[u8]) -> Result<usize, Strange> {
    usize::try_from(number(digits)?).ok().filter(|length| *length <= LONGEST).ok_or(Strange)
}

/// What an answer is expected to be.
pub(crate) trait FromValue: Sized {
    /// Nothing if the answer is of another kind.
    fn from_value(value: Value) -> Option<Self>;
}

impl FromValue for Value {
    fn from_value(value: Value) -> Option<Self> {
        Some(value)
    }
}

impl FromValue for String {
    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Text(text) => Self::from_utf8(text).ok(),
            Value::Int(number) => Some(number.to_string()),
            _ => None,
        }
    }
}

impl FromValue for u64 {
    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Int(number) => Self::try_from(number).ok(),
            Value::Text(text) => std::str::from_utf8(&text).ok()?.parse().ok(),
            _ => None,
        }
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: Value) -> Option<Self> {
        if value == Value::Nil { Some(None) } else { T::from_value(value).map(Some) }
    }
}

impl<T: FromValue> FromValue for Vec<T> {
    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::List(list) => list.into_iter().map(T::from_value).collect(),
            _ => None,
        }
    }
}

impl<A: FromValue, B: FromValue> FromValue for (A, B) {
    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::List(list) => {
                let [first, second] = <[Value; 2]>::try_from(list).ok()?;
                Some((A::from_value(first)?, B::from_value(second)?))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &[u8] = b"*5\r\n+OK\r\n:-7\r\n$-1\r\n$4\r\na\r\nb\r\n*1\r\n-ERR it broke\r\n";

    fn answer() -> Value {
        Value::List(vec![
            Value::Text(b"OK".to_vec()),
            Value::Int(-7),
            Value::Nil,
            Value::Text(b"a\r\nb".to_vec()),
            Value::List(vec![Value::No(Refused { code: "ERR".into(), said: "it broke".into() })]),
        ])
    }

    #[test]
    fn what_a_script_was_refused_with_is_found_in_old_answers() {
        let code = |line: &str| refused(line.as_bytes()).code;
        let wrapped = "ERR Error running script (call to f_0123456789abcdef): @user_script";
        for (inner, expected) in [
            (": 12: -READONLY You can't write against a read only replica.", "READONLY"),
            (": 9: -OOM command not allowed when used memory > 'maxmemory'.", "OOM"),
            (":34: WRONGTYPE Operation against a key of another kind", "WRONGTYPE"),
            (":34: @user_script: 34: -MISCONF Redis is configured to save", "MISCONF"),
            (":34: ERR value is not an integer or out of range", "ERR"),
            (":34: user_script:34: attempt to index a nil value", "ERR"),
        ] {
            assert_eq!(code(&format!("{wrapped}{inner}")), expected, "{inner}");
        }
        let oom = refused(format!("{wrapped}: 9: -OOM not allowed").as_bytes());
        assert_eq!(oom.said, "not allowed");
        assert_eq!(code("SPRAGCORRUPT the record is damaged"), "SPRAGCORRUPT");
        assert_eq!(code("NOAUTH"), "NOAUTH");
    }

    #[test]
    fn a_request_tells_the_size_of_everything() {
        let mut out = b"before".to_vec();
        write(&["", "123456789", &"x".repeat(1234)], &mut out);
        let long = "x".repeat(1234);
        let told = format!("before*3\r\n$0\r\n\r\n$9\r\n123456789\r\n$1234\r\n{long}\r\n");
        assert_eq!(String::from_utf8(out).unwrap(), told);
    }

    #[test]
    fn an_answer_is_read_once_it_is_complete() {
        for end in 0..ANSWER.len() {
            assert_eq!(read(&ANSWER[..end]), Ok(None), "{end}");
        }
        let more = [ANSWER, b"+next"].concat();
        assert_eq!(read(&more), Ok(Some((answer(), ANSWER.len()))));
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for bytes in [
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            b"\x15\x03\x01\n",
            b"$3\r\nabcd\r\n",
            b"$9999999999\r\n",
            b"$-2\r\n",
            b":1x\r\n",
            b"\n",
            &b"*1\r\n".repeat(9),
            &[b'+'; 1 << 17],
        ] {
            assert_eq!(read(bytes), Err(Strange), "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn a_request_is_a_list_of_words() {
        let mut out = Vec::new();
        write(&["GET", "a\r\nb", ""], &mut out);
        assert_eq!(out, b"*3\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n$0\r\n\r\n");
    }

    #[test]
    fn an_answer_of_another_kind_is_not_taken_for_ours() {
        assert_eq!(<(u64, String)>::from_value(answer()), None);
        assert_eq!(Vec::<u64>::from_value(Value::Text(b"1".to_vec())), None);
        assert_eq!(Option::<String>::from_value(Value::Nil), Some(None));
    }
}
