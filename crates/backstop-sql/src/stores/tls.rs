//! What a database URL and the settings beside it say of TLS, together.

use backstop_core::config::Secret;
use backstop_core::setting::{Faults, SettingFault};

use super::url::{Form, Takes, is_content};
use crate::{Error, Tls, TlsMode};

impl Form {
    /// The settings for TLS, with what the URL says where they say nothing. A certificate or key that the URL names by its
    /// file is left to the driver. What contradicts itself is refused, and so is what would have no effect: whoever gives
    /// a root certificate believes that the server is checked by it.
    pub(super) fn tls(&self, url: &str, beside: &Tls) -> Result<Tls, Error> {
        Error::unless_fit_under("tls", beside)?;
        let (mut all, mut faults) = (beside.clone(), Faults::default());
        let mut names = [("mode", None), ("ca", None), ("certificate", None)];
        for (name, takes, value) in self.parameters(url) {
            let (key, is_given) = match takes {
                Takes::Mode(words) => {
                    let word = words.iter().find(|(word, _)| *word == value.to_ascii_lowercase());
                    all.mode = all.mode.or(word.map(|(_, mode)| *mode));
                    ("mode", beside.mode.is_some())
                }
                Takes::Pem(key) => (*key, all.take(key, &value)),
                Takes::Anything | Takes::OneOf(_) => continue,
            };
            if is_given {
                faults
                    .add(key, format!("stands in the URL too, as the parameter {name}; keep one of the two"));
            }
            if let Some((_, named)) = names.iter_mut().find(|(known, _)| *known == key) {
                *named = Some(name);
            }
        }
        let [(_, mode), (_, ca), (_, certificate)] = names;
        if beside.ca.is_some() {
            all.mode = all.mode.or(Some(TlsMode::VerifyFull));
        }
        let checks = matches!(all.mode, Some(TlsMode::VerifyCa | TlsMode::VerifyFull));
        if (beside.ca.is_some() || ca.is_some()) && !checks {
            let rule = "has no effect unless the server's certificate is checked: set the mode verify-full, or verify-ca";
            self.refuse(&mut faults, "ca", ca, rule)?;
        }
        if (beside.certificate.is_some() || certificate.is_some()) && all.mode == Some(TlsMode::Disable) {
            self.refuse(
                &mut faults,
                "certificate",
                certificate,
                "has no effect without encryption: set another mode",
            )?;
        }
        if all.mode == Some(TlsMode::VerifyCa) && beside.ca.is_none() && ca.is_none() {
            let rule = "is verify-ca, which needs a root certificate: any authority of the system could vouch for any \
                        server; use verify-full";
            self.refuse(&mut faults, "mode", mode, rule)?;
        }
        faults.into_result().map_err(Error::tls_settings)?;
        Ok(all)
    }

    /// Refuses a parameter of the URL if it is one, else notes the setting.
    fn refuse(
        &self,
        faults: &mut Faults,
        key: &'static str,
        parameter: Option<&str>,
        rule: &str,
    ) -> Result<(), Error> {
        if let Some(name) = parameter {
            return Err(Error::Url { why: format!("its parameter {name} {rule}"), example: self.example });
        }
        faults.add(key, rule);
        Ok(())
    }
}

impl Tls {
    /// Takes what the URL has, and tells whether the setting was given already.
    fn take(&mut self, key: &str, value: &str) -> bool {
        let setting = match key {
            "ca" => &mut self.ca,
            "certificate" => &mut self.certificate,
            _ => &mut self.key,
        };
        let is_given = setting.is_some();
        if !is_given && is_content(value) {
            *setting = Some(Secret::from(value));
        }
        is_given
    }
}

impl Error {
    /// Refuses the settings of a group that make no sense, with every fault.
    fn unless_fit_under(group: &str, config: &impl backstop_core::config::Config) -> Result<(), Self> {
        let mut faults = Faults::default();
        faults.under(group, |faults| config.check(faults));
        faults.into_result().map_err(|faults| Self::Settings { faults })
    }

    fn tls_settings(mut faults: Vec<SettingFault>) -> Self {
        for fault in &mut faults {
            "tls".clone_into(&mut fault.group);
        }
        Self::Settings { faults }
    }
}
