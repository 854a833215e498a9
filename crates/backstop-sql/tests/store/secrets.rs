//! Hostile URLs from a seed: whatever stands where a password may stand is in no error and no log.

use backstop_sql::store::DatabaseKind;
use backstop_testkit::logs::Logs;
use sqlx::mysql::MySqlConnectOptions;
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;

const CANARY: &str = "c4n4ryS3cret";

/// What may stand around a password, and what a careless hand leaves unescaped.
const NOISE: [&str; 21] = [
    "",
    "",
    "1",
    "12",
    "a",
    ":",
    "/",
    "//",
    "?",
    "#",
    "@",
    "&",
    "=",
    "%",
    "%2F",
    "%zz",
    "[",
    "]",
    " ",
    "\n",
    "\u{1b}[2J",
];

const PARAMETERS: [&str; 12] = [
    "password",
    "sslpassword",
    "pasword",
    "sslmode",
    "ssl-mode",
    "mode",
    "cache",
    "vfs",
    "immutable",
    "tok%65n",
    "",
    "x y",
];

/// A URL with a secret where secrets stand.
fn hostile(random: &mut fastrand::Rng) -> String {
    let mut some = |choices: &[&str]| random.choice(choices.iter().copied()).unwrap_or_default().to_owned();
    let scheme = some(&[
        "postgres",
        "postgresql",
        "mysql",
        "mariadb",
        "sqlite",
        "Postgres",
        "oracle",
        "jdbc:mysql",
        "",
    ]);
    let colon = some(&["://", "://", "://", ":", ":/", ":///", "//", ""]);
    let password = some(&NOISE) + &some(&NOISE) + CANARY + &some(&NOISE) + &some(&NOISE);
    let host = some(&["h", "127.0.0.1:1", "[::1]:9", "h:port", "h:99999"]);
    let login = match some(&["password", "password", "parameter"]).as_str() {
        "password" => format!("user:{password}@"),
        _ => some(&["", "user@"]),
    };
    let query = if login.contains(CANARY) {
        some(&["", "?", "?sslmode=disable", "?x=y", "?sslmode"])
    } else {
        format!("?{}={password}", some(&PARAMETERS))
    };
    format!("{scheme}{colon}{login}{host}/database{query}")
}

/// What an error tells of a URL that is understood: where it leads, and which database.
fn shown(kind: DatabaseKind, url: &str) -> String {
    match kind {
        DatabaseKind::Mysql => {
            let options: MySqlConnectOptions = url.parse().unwrap();
            format!("{} {:?}", options.get_host(), options.get_database())
        }
        DatabaseKind::Postgres => {
            let options: PgConnectOptions = url.parse().unwrap();
            format!("{} {:?} {}", options.get_host(), options.get_database(), options.get_username())
        }
        DatabaseKind::Sqlite => {
            url.parse::<SqliteConnectOptions>().unwrap().get_filename().display().to_string()
        }
    }
}

#[test]
fn no_hostile_url_shows_its_secret() {
    let mut random = fastrand::Rng::with_seed(13);
    let logs = Logs::catch_all();
    let (mut refused, mut taken) = (0, 0);
    for _ in 0..50_000 {
        let url = hostile(&mut random);
        match DatabaseKind::check(&url) {
            Ok(kind) => {
                taken += 1;
                let shown = shown(kind, &url);
                assert!(!shown.contains(CANARY), "{url:?}: {shown}");
            }
            Err(error) => {
                refused += 1;
                let said = format!("{error} {error:?} {error:#?}");
                assert!(!said.contains(CANARY), "{url:?}: {said}");
            }
        }
    }
    assert!(!logs.all().contains(CANARY), "{}", logs.all());
    assert!(refused > 1_000 && taken > 500, "{refused} refused, {taken} taken");
}
