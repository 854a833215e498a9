//! The API of a daemon that runs, asked by a command.

mod tls;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use backstop_core::config::Secret;
use clap::Args;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::http::uri::Authority;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::args::Config;
use crate::config;
use tls::Tls;

/// How long an answer may take. A component may take two seconds to report.
const PATIENCE: Duration = Duration::from_secs(30);

/// How much of an answer is read.
const LIMIT: usize = 16 * 1024 * 1024;

/// Where the token is, unless a flag says otherwise.
const TOKEN: &str = "env:BACKSTOP_TOKEN";

/// How the daemon is reached.
#[derive(Debug, Args)]
pub(crate) struct Reach {
    /// Where the daemon's dashboard is, in place of `server.address` of the settings file.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Root certificates in PEM form, one of which must vouch for a daemon with TLS; those of the system count too, and
    /// those in `server.tls` of the settings file.
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// The access token, `env:NAME` or `file:PATH`. Without the flag it is the variable `BACKSTOP_TOKEN`, where it is set.
    #[arg(long, value_name = "SECRET")]
    pub(crate) token: Option<String>,
}

pub(crate) struct Api {
    authority: Authority,
    tls: Option<Tls>,
    token: Option<Secret>,
}

impl Api {
    /// The settings file is read only where no URL is given.
    pub(crate) fn of(reach: &Reach, config: &Config) -> anyhow::Result<Self> {
        let (is_https, authority, own) = if let Some(url) = &reach.url {
            let (is_https, authority) = address_of(url)?;
            (is_https, authority, None)
        } else {
            let (settings, _) = config::load(&config.config)?.settings()?;
            let authority = authority_in(&settings.server)?;
            let own = settings.server.tls.certificate;
            (own.is_some(), authority, own)
        };
        let tls = match (is_https, &reach.ca) {
            (true, ca) => Some(Tls::trusting(ca.as_deref(), own.as_ref().map(Secret::reveal))?),
            (false, Some(_)) => {
                bail!("--ca is for a daemon with TLS, and http://{authority} is asked without")
            }
            (false, None) => None,
        };
        let token = match &reach.token {
            Some(token) => Some(config::secret(token).context("--token cannot be used")?),
            // Without tokens anybody on this machine may look.
            None => config::secret(TOKEN).ok(),
        };
        Ok(Self { authority, tls, token: token.map(Secret::from) })
    }

    fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.authority)
    }

    async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.ask(Method::GET, path, Bytes::new()).await
    }

    /// The components of the daemon, as it reports them.
    pub(crate) async fn components(&self) -> anyhow::Result<Vec<Value>> {
        match self.get("/api/v1/components").await? {
            Value::Array(all) => Ok(all),
            _ => bail!("{} answers, but not as the daemon does", self.url()),
        }
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.ask(Method::POST, path, body.to_string().into()).await
    }

    async fn ask(&self, method: Method, path: &str, body: Bytes) -> anyhow::Result<Value> {
        let (code, body) = timeout(PATIENCE, self.exchange(method, path, body))
            .await
            .with_context(|| format!("{} did not answer within {} s", self.url(), PATIENCE.as_secs()))??;
        let answer: Value = serde_json::from_slice(&body)
            .ok()
            .with_context(|| format!("{} answers {code}, but not as the daemon does", self.url()))?;
        if code.is_success() {
            return Ok(answer);
        }
        let told = answer["error"].as_str().unwrap_or("no reason was given");
        let advice = match (code, &self.token) {
            (StatusCode::UNAUTHORIZED, None) => "; name one with --token, or set BACKSTOP_TOKEN",
            _ => "",
        };
        bail!("{} answers {}: {told}{advice}", self.url(), code.as_u16())
    }

    async fn exchange(&self, method: Method, path: &str, body: Bytes) -> anyhow::Result<(StatusCode, Bytes)> {
        let request = self.request(method, path, body)?;
        let stream = TcpStream::connect(self.authority.as_str()).await.with_context(|| self.nobody())?;
        let Some(tls) = &self.tls else { return self.converse(stream, request).await };
        match tls.agree(self.authority.host(), stream).await {
            Ok(stream) => self.converse(stream, request).await,
            Err(why) => bail!("{} {why}", self.url()),
        }
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> anyhow::Result<Request<Full<Bytes>>> {
        let mut request = Request::builder().method(method).uri(path).header(HOST, self.authority.as_str());
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(token) = &self.token {
            let mut value = HeaderValue::from_str(&format!("Bearer {}", token.reveal()))
                .ok()
                .context("--token leads to a text that is no access token")?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        request.body(Full::new(body)).context("the request cannot be made")
    }

    async fn converse<S>(
        &self,
        stream: S,
        request: Request<Full<Bytes>>,
    ) -> anyhow::Result<(StatusCode, Bytes)>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .with_context(|| self.nobody())?;
        let talking = tokio::spawn(connection);
        let answer = match sender.send_request(request).await {
            // What a server with TLS answers to plain HTTP.
            Err(error) if self.tls.is_none() && (error.is_parse() || error.is_incomplete_message()) => bail!(
                "{} does not speak plain HTTP; with `server.tls` the address of a daemon begins with https://",
                self.url()
            ),
            answer => answer.with_context(|| self.nobody())?,
        };
        let code = answer.status();
        let read = Limited::new(answer.into_body(), LIMIT).collect().await;
        talking.abort();
        match read {
            Ok(body) => Ok((code, body.to_bytes())),
            Err(error) => bail!("the answer of {} cannot be read: {error}", self.url()),
        }
    }

    fn nobody(&self) -> String {
        format!("cannot reach {}; is `backstop serve` running there?", self.url())
    }
}

/// Whether a URL asks for TLS, and its host and port: the daemon's page has no path and no password.
fn address_of(url: &str) -> anyhow::Result<(bool, Authority)> {
    let rule = "--url must be the address of the dashboard, such as http://127.0.0.1:7878, without a path";
    let (is_https, rest) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
        (Some(rest), _) => (false, rest),
        (_, Some(rest)) => (true, rest),
        (None, None) => bail!("{rule}"),
    };
    let text = rest.strip_suffix('/').unwrap_or(rest);
    let Ok(authority) = text.parse::<Authority>() else { bail!("{rule}") };
    if text.contains('@') || authority.host().is_empty() {
        bail!("{rule}");
    }
    match (authority.port_u16(), text == authority.host()) {
        (Some(_), _) => Ok((is_https, authority)),
        (None, true) => {
            let port = if is_https { 443 } else { 80 };
            Ok((is_https, format!("{text}:{port}").parse().context(rule)?))
        }
        // What stands behind the colon is no port.
        (None, false) => bail!("{rule}"),
    }
}

/// The address that the settings give the daemon, as this machine reaches it.
fn authority_in(server: &backstop_admin::Config) -> anyhow::Result<Authority> {
    if !server.enabled {
        bail!("server.enabled is false in the settings file, so the daemon cannot be asked");
    }
    let mut address = server.address;
    if address.port() == 0 {
        bail!("server.address has port 0 in the settings file, so the port is not known; name it with --url");
    }
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        });
    }
    address.to_string().parse().context("server.address cannot be asked")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_scheme_host_and_port() {
        for (url, is_https, authority) in [
            ("http://127.0.0.1:7878", false, "127.0.0.1:7878"),
            ("http://localhost:7878/", false, "localhost:7878"),
            ("http://backstop.example", false, "backstop.example:80"),
            ("http://[::1]:7878", false, "[::1]:7878"),
            ("https://backstop.example", true, "backstop.example:443"),
            ("https://[::1]", true, "[::1]:443"),
        ] {
            assert_eq!(address_of(url).unwrap(), (is_https, authority.parse().unwrap()));
        }
        for url in [
            "",
            "127.0.0.1:7878",
            "ftp://h",
            "https://",
            "http://",
            "http://u:hunter2@h",
            "https://u:hunter2@h",
            "http://h/path",
            "http://h:x",
        ] {
            let told = address_of(url).unwrap_err().to_string();
            assert!(told.starts_with("--url must be") && !told.contains("hunter2"), "{url}: {told}");
        }
    }

    #[test]
    fn the_address_of_the_settings_is_reached_from_this_machine() {
        let at = |address: &str| backstop_admin::Config {
            address: address.parse().unwrap(),
            ..Default::default()
        };
        assert_eq!(authority_in(&at("0.0.0.0:7878")).unwrap(), "127.0.0.1:7878");
        assert_eq!(authority_in(&at("[::]:7878")).unwrap(), "[::1]:7878");
        assert_eq!(authority_in(&at("192.0.2.7:80")).unwrap(), "192.0.2.7:80");
        assert!(authority_in(&at("127.0.0.1:0")).unwrap_err().to_string().contains("--url"));
        let off = backstop_admin::Config { enabled: false, ..at("127.0.0.1:1") };
        assert!(authority_in(&off).is_err());
    }
}
