// Any text as the file of what a switcher probed, and as the id of a rendezvous: refused, or in
// numbers that can be, and the same when it is written and read again.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/fuzz/target.h"
#include "transport/collective/core/id.h"
#include "transport/collective/switcher/cache.h"

LH_FUZZ_TARGET(collective_cache) {
  using namespace longhaul::collective;  // NOLINT(google-build-using-namespace)
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto id = internal::ParseId(text);
  if (id.ok() && internal::FormatId(*id) != text) std::abort();
  constexpr char kKey[] = "two ranks";
  const auto probes = switcher::ParseCache(text, kKey, 2);
  if (!probes.ok()) return id.ok();
  for (const switcher::Probe& probe : *probes) {
    for (const switcher::Point& point : probe.points) {
      for (const double seconds : point.seconds) {
        if (!std::isfinite(seconds) || seconds < 0) std::abort();
      }
      if (point.seconds.size() != 2) std::abort();
    }
    for (size_t communicator = 0; communicator < 2; ++communicator) {
      const switcher::Fit fit = switcher::FitOf(probe.points, communicator);
      if (!(fit.start >= 0) || !(fit.per_byte >= 0)) std::abort();
      (void)switcher::WinsFrom(probe.points, communicator, 0.05);
    }
  }
  const std::string again = switcher::FormatCache(kKey, *probes);
  if (!switcher::ParseCache(again, kKey, 2).ok()) std::abort();
  return true;
}
