//! C libraries that block, on green threads: libcurl, and postgres' libpq.

#![cfg(feature = "servers")]

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_void};
use std::sync::{Arc, Condvar, Mutex};
use support::http::{Gate, Server};
use support::{Test, descriptors, server, some};

/// Kernel threads while all wait, and at any time.
const BOUND: usize = 40;
const PEAK: usize = 300;

fn crowd() -> usize {
    some(1_000, 100)
}

#[link(name = "curl")]
unsafe extern "C" {
    fn curl_global_init(flags: c_long) -> c_int;
    fn curl_easy_init() -> *mut c_void;
    fn curl_easy_setopt(handle: *mut c_void, option: c_int, ...) -> c_int;
    fn curl_easy_perform(handle: *mut c_void) -> c_int;
    fn curl_easy_cleanup(handle: *mut c_void);
}

const GLOBAL_ALL: c_long = 3;
const WRITE_DATA: c_int = 10_001;
const URL: c_int = 10_002;
const WRITE_FUNCTION: c_int = 20_011;
const NO_SIGNAL: c_int = 99;

extern "C" fn collect(data: *const u8, size: usize, n: usize, body: *mut Vec<u8>) -> usize {
    // SAFETY: libcurl passes so many bytes, and what was given as WRITE_DATA.
    unsafe { (*body).extend_from_slice(std::slice::from_raw_parts(data, size * n)) };
    size * n
}

fn fetch(url: &str) -> String {
    let url = CString::new(url).unwrap();
    let mut body = Vec::new();
    // SAFETY: a handle of this call's own; the options have the types that libcurl asks for.
    unsafe {
        let handle = curl_easy_init();
        assert!(!handle.is_null());
        for set in [
            curl_easy_setopt(handle, URL, url.as_ptr()),
            curl_easy_setopt(handle, NO_SIGNAL, 1 as c_long),
            curl_easy_setopt(handle, WRITE_FUNCTION, collect as *const c_void),
            curl_easy_setopt(handle, WRITE_DATA, &raw mut body),
        ] {
            assert_eq!(set, 0);
        }
        assert_eq!(curl_easy_perform(handle), 0, "{url:?}");
        curl_easy_cleanup(handle);
    }
    String::from_utf8(body).unwrap()
}

/// All requests are there before one is answered.
#[test]
fn libcurl() {
    let test = Test::new("libcurl", 120);
    // A handle has a socket, and two more to be woken by.
    let n = crowd().min((descriptors() - 200) / 5);
    // SAFETY: before any other use of the library.
    assert_eq!(unsafe { curl_global_init(GLOBAL_ALL) }, 0);
    let gate = Arc::new(Gate::default());
    let web = Server::new(&gate);
    let threads: Vec<_> = (0..n)
        .map(|i| {
            greenthread::spawn(move || {
                let path = format!("/held/{i}");
                let body = fetch(&format!("http://{}{path}", web.address(i)));
                assert_eq!(body, format!("answer to {path}"));
            })
        })
        .collect();
    test.until(|| gate.waiting() == n);
    test.all_wait(BOUND);
    gate.open();
    threads.into_iter().for_each(|t| t.join().unwrap());
    test.report();
}

#[link(name = "pq")]
unsafe extern "C" {
    fn PQconnectdb(options: *const c_char) -> *mut c_void;
    fn PQstatus(connection: *const c_void) -> c_int;
    fn PQerrorMessage(connection: *const c_void) -> *const c_char;
    fn PQexec(connection: *mut c_void, query: *const c_char) -> *mut c_void;
    fn PQgetvalue(result: *const c_void, row: c_int, column: c_int) -> *const c_char;
    fn PQresultStatus(result: *const c_void) -> c_int;
    fn PQclear(result: *mut c_void);
    fn PQfinish(connection: *mut c_void);
}

const CONNECTION_OK: c_int = 0;
const TUPLES_OK: c_int = 2;

struct Connection(*mut c_void);

// SAFETY: a connection may be used by any thread, one at a time.
unsafe impl Send for Connection {}

impl Connection {
    fn new(options: &str) -> Connection {
        let options = CString::new(options).unwrap();
        // SAFETY: a valid string.
        let connection = Connection(unsafe { PQconnectdb(options.as_ptr()) });
        // SAFETY: a connection, though perhaps a bad one.
        let status = unsafe { PQstatus(connection.0) };
        assert_eq!(status, CONNECTION_OK, "{}", connection.error());
        connection
    }

    fn error(&self) -> String {
        // SAFETY: a connection, the error of which is a string.
        unsafe { CStr::from_ptr(PQerrorMessage(self.0)) }
            .to_string_lossy()
            .into_owned()
    }

    /// The first value that the query gives.
    fn query(&mut self, query: &str) -> String {
        let query = CString::new(query).unwrap();
        // SAFETY: a connection, and a result that is used until it is cleared.
        unsafe {
            let result = PQexec(self.0, query.as_ptr());
            assert_eq!(PQresultStatus(result), TUPLES_OK, "{}", self.error());
            let value = CStr::from_ptr(PQgetvalue(result, 0, 0))
                .to_str()
                .unwrap()
                .to_owned();
            PQclear(result);
            value
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: the last use.
        unsafe { PQfinish(self.0) };
    }
}

/// A thousand threads, and fifty places for connections. Half of the threads leave theirs to another one.
#[test]
fn libpq() {
    let Some(options) = server("GT_POSTGRES") else {
        return;
    };
    let test = Test::new("libpq", 120);
    let n = crowd();
    let options = format!("{options} gssencmode=disable");
    // Kept connections, and places for new ones.
    let places: Vec<Option<Connection>> = (0..50).map(|_| None).collect();
    let pool = Arc::new((Mutex::new(places), Condvar::new()));
    let threads: Vec<_> = (0..n)
        .map(|i| {
            let (pool, options) = (pool.clone(), options.clone());
            greenthread::spawn(move || {
                let (places, one_free) = &*pool;
                let free = one_free.wait_while(places.lock().unwrap(), |places| places.is_empty());
                let kept = free.unwrap().pop().unwrap();
                let mut connection = kept.unwrap_or_else(|| Connection::new(&options));
                let answer = connection.query(&format!("SELECT {i} + 1, pg_sleep(0.01)"));
                assert_eq!(answer, (i + 1).to_string());
                let keep = i.is_multiple_of(2).then_some(connection);
                places.lock().unwrap().push(keep);
                one_free.notify_one();
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    test.never_above(PEAK);
}
