//! Passwords that stand outside of URLs, and what is said when there is none or a wrong one.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;

use sprag_testkit::redis_server::{RedisServer, RedisSetup};

use super::support::{Answer, Home, text};

/// What PostgreSQL says at the door, without anything behind it: it wants `hunter2` of everybody, and
/// has no database.
fn doorkeeper() -> String {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in server.incoming() {
            drop(ask_for_password(stream.unwrap()));
        }
    });
    address
}

fn ask_for_password(mut stream: TcpStream) -> std::io::Result<()> {
    // No TLS, then who it is, then a password in clear text.
    let mut first = [0; 8];
    stream.read_exact(&mut first)?;
    stream.write_all(b"N")?;
    message(&mut stream, 0)?;
    stream.write_all(b"R\0\0\0\x08\0\0\0\x03")?;
    let password = message(&mut stream, 1)?;
    let said = match &password[..] {
        b"hunter2\0" => "SFATAL\0C3D000\0Mlet in\0\0",
        _ => "SFATAL\0C28P01\0Mpassword authentication failed\0\0",
    };
    let length = u32::try_from(said.len() + 4).unwrap();
    stream.write_all(b"E")?;
    stream.write_all(&length.to_be_bytes())?;
    stream.write_all(said.as_bytes())
}

/// The body of a message, behind so many bytes and its length.
fn message(stream: &mut TcpStream, kind: usize) -> std::io::Result<Vec<u8>> {
    let mut head = vec![0; kind + 4];
    stream.read_exact(&mut head)?;
    let length: [u8; 4] = head[kind..].try_into().unwrap();
    let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
    stream.read_exact(&mut body)?;
    Ok(body)
}

/// A file that nobody else can read.
fn private(home: &Home, name: &str, content: &str) -> String {
    let path = home.write(name, content);
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    text(&path).to_owned()
}

/// What is said about a missing or a wrong password, which is not what is said about a server that is
/// away.
#[track_caller]
fn refused(answer: Answer, what: &str) {
    let answer = answer.exits(77);
    assert!(answer.err.starts_with("error[SP031]") && answer.err.contains(what), "{answer:?}");
    assert!(!answer.err.contains("hunter2"), "{answer:?}");
}

#[test]
fn a_password_that_is_missing_or_wrong_is_no_server_that_is_away() {
    let (home, door) = (Home::new(), doorkeeper());
    let url = format!("postgres://me@{door}/app");
    for command in ["ls", "doctor"] {
        refused(home.sprag(&[command, "-S", &url]), "answers, and wants a password");
        let wrong = home.sprag_with(&[("PGPASSWORD", "other")], &[command, "-S", &url]);
        refused(wrong, "answers, and refused the user or password");
        let away = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let away = home.sprag(&[command, "-S", &format!("postgres://me@{away}/app")]).exits(69);
        assert!(away.err.starts_with("error[SP030]"), "{away:?}");
    }
}

#[test]
fn postgresql_is_given_the_password_from_where_psql_finds_it() {
    let (home, door) = (Home::new(), doorkeeper());
    let (host, port) = door.split_once(':').unwrap();
    let url = format!("postgres://me@{door}/app");
    #[track_caller]
    fn let_in(answer: &Answer) {
        assert!(answer.err.contains("has no database \"app\""), "{answer:?}");
    }
    let_in(&home.sprag_with(&[("PGPASSWORD", "hunter2")], &["ls", "-S", &url]));
    let file = private(&home, "secret", "hunter2\n");
    let_in(&home.sprag(&["ls", "-S", &format!("{url}?password_file={file}")]));
    let line = format!("{host}:{port}:app:me:hunter2\n");
    let named = private(&home, "passwords", &line);
    let_in(&home.sprag_with(&[("PGPASSFILE", &named)], &["ls", "-S", &url]));
    let service =
        format!("[app]\nhost={host}\nport={port}\nuser=me\ndbname=app\npassword=hunter2\n");
    private(&home, ".pg_service.conf", &service);
    let_in(&home.sprag(&["ls", "-S", "postgres:///?service=app"]));
    let_in(&home.sprag_with(&[("PGSERVICE", "app")], &["ls", "-S", "postgres:///"]));
    let own = private(&home, ".pgpass", &line);
    let_in(&home.sprag(&["ls", "-S", &url]));
    std::fs::set_permissions(own, PermissionsExt::from_mode(0o644)).unwrap();
    refused(home.sprag(&["ls", "-S", &url]), "others can read it (mode 644): type chmod 600");
}

#[test]
fn redis_is_given_the_password_from_where_redis_cli_finds_it() {
    if RedisServer::skipped() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(RedisSetup::new().password("hunter2").start());
    let home = Home::new();
    let url = format!("redis+unix://{}", server.socket().display());
    refused(home.sprag(&["doctor", "-S", &url]), "answers, and wants a password");
    let wrong = [("REDISCLI_AUTH", "other")];
    refused(home.sprag_with(&wrong, &["ls", "-S", &url]), "answers, and refused the user or");
    home.sprag_with(&[("REDISCLI_AUTH", "hunter2")], &["ls", "-S", &url]).ok();
    let file = private(&home, "secret", "hunter2\n");
    let with_file = format!("{url}?password_file={file}");
    home.sprag_with(&wrong, &["ls", "-S", &with_file]).ok();
    std::fs::remove_file(file).unwrap();
    refused(home.sprag(&["ls", "-S", &with_file]), "secret cannot be read");
}
