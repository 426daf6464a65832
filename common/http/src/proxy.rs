//! Selects the proxy of a request like curl: by the scheme of the target, unless `NO_PROXY` has the host.

use cp_common::{Error, Result};

/// The proxy for a target, from the environment.
pub(crate) fn proxy_for(
    scheme: &str,
    host: &str,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<ureq::Proxy>> {
    let first = |names: &[&str]| names.iter().find_map(|name| variable(name).filter(|value| !value.is_empty()));
    if first(&["no_proxy", "NO_PROXY"]).is_some_and(|list| is_exempt(&list, host)) {
        return Ok(None);
    }
    let own: &[&str] = match scheme {
        "https" => &["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"],
        // HTTP_PROXY is ignored, as in curl, because a CGI server sets it from a header of the request.
        _ => &["http_proxy", "all_proxy", "ALL_PROXY"],
    };
    let Some(address) = first(own) else { return Ok(None) };
    // The URL may have a password, so messages never contain it.
    let proxy = ureq::Proxy::new(&address)
        .map_err(|_| Error::config("the proxy in the environment is not a valid URL").fatal())?;
    if !matches!(proxy.protocol(), ureq::ProxyProtocol::Http | ureq::ProxyProtocol::Https) {
        return Err(Error::config("a SOCKS proxy is not supported")
            .hint("use an HTTP proxy, or exempt the host with NO_PROXY")
            .fatal());
    }
    Ok(Some(proxy))
}

/// True if a `NO_PROXY` list has the host: `*`, the host itself, or its domain.
fn is_exempt(list: &str, host: &str) -> bool {
    let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
    list.split([',', ' ']).map(|entry| entry.trim().trim_start_matches('.').to_ascii_lowercase()).any(|entry| {
        let entry = entry.trim_matches(['[', ']']);
        entry == "*"
            || (!entry.is_empty()
                && (host == entry || host.strip_suffix(entry).is_some_and(|rest| rest.ends_with('.'))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxied(scheme: &str, host: &str, variables: &[(&str, &str)]) -> Option<String> {
        let variable = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        proxy_for(scheme, host, variable).unwrap().map(|proxy| proxy.host().to_owned())
    }

    #[test]
    fn proxy_is_selected_by_scheme() {
        let variables =
            [("HTTPS_PROXY", "http://secure:1"), ("http_proxy", "http://plain:1"), ("HTTP_PROXY", "http://cgi:1")];
        assert_eq!(proxied("https", "a.example", &variables).unwrap(), "secure");
        assert_eq!(proxied("http", "a.example", &variables).unwrap(), "plain");
        assert_eq!(proxied("http", "a.example", &variables[2..]), None);
    }

    #[test]
    fn no_proxy_exempts_hosts_and_domains() {
        let with = |list| [("ALL_PROXY", "http://p:1"), ("NO_PROXY", list)];
        assert_eq!(proxied("https", "api.example.com", &with("other, .example.com")), None);
        assert_eq!(proxied("https", "badexample.com", &with("example.com")).unwrap(), "p");
        assert_eq!(proxied("https", "a", &with("*")), None);
        assert_eq!(proxied("http", "[::1]", &with("::1")), None);
    }
}
