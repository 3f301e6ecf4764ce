// Any text as an address or a list of them: refused, or it is written as an address that is read to
// the same again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/address.h"
#include "base/fuzz/target.h"

LH_FUZZ_TARGET(addresses) {
  using namespace longhaul;  // NOLINT(google-build-using-namespace)
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  bool taken = false;
  if (const auto address = ParseHostPort(text); address.ok()) {
    taken = true;
    const auto again = ParseHostPort(ToString(*address));
    if (!again.ok() || again->host != address->host || again->port != address->port) std::abort();
    // This machine's own addresses are no public ones.
    if (IsLoopback(address->host) && !IsPrivate(address->host)) std::abort();
  }
  if (const auto list = ParseAddressList(text); list.ok()) {
    taken = true;
    if (list->empty()) std::abort();
    for (const std::string& one : *list) {
      if (!ParseHostPort(one).ok()) std::abort();
    }
  }
  if (const std::string reached = ReachedAt(text, "host.example");
      !reached.empty() && !ParseHostPort(reached).ok()) {
    std::abort();
  }
  return taken;
}
