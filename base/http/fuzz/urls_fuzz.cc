// Any text as a web address and as the target of a redirect: refused, or in a form that is read to
// the same again, with a host that the rules can judge.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/fuzz/target.h"
#include "base/http/host_rules.h"

LH_FUZZ_TARGET(urls) {
  using namespace longhaul::http;  // NOLINT(google-build-using-namespace)
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto check = [](const longhaul::StatusOr<Url>& url) {
    if (!url.ok()) return false;
    const auto again = ParseUrl(url->text);
    // Another origin at the second reading would pass the rules under a name that is not asked.
    if (!again.ok() || again->text != url->text || again->origin() != url->origin()) std::abort();
    if (url->host.empty() || (url->scheme != "http" && url->scheme != "https")) std::abort();
    const HostRules only{.hosts = {"example.org", "*.example.org"}};
    const bool allowed = CheckUrl(*url, only).ok();
    const bool named = url->host == "example.org" || url->host.ends_with(".example.org");
    if (allowed && (!named || url->scheme != "https")) std::abort();
    // A message never has the query in it.
    const size_t query = url->text.find('?');
    if (query != std::string::npos && ShownUrl(url->text) != url->text.substr(0, query) + "?...") {
      std::abort();
    }
    return true;
  };
  static const Url base = ParseUrl("https://example.org/a/b?c=d").value();
  const bool taken = check(ParseUrl(text));
  return check(FollowUrl(base, text)) || taken;
}
