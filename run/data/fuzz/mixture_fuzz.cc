// Any text as dataset.json and as the list of a run's data sets: read or refused. What was read can
// be reckoned with, and reads as it was written.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/fuzz/target.h"
#include "run/data/data_set.h"
#include "run/data/sample_order.h"

LH_FUZZ_TARGET(mixture) {
  using namespace longhaul::data;  // NOLINT(google-build-using-namespace)
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  constexpr uint32_t kContext = 16;
  auto mixture = MixtureFromJson(text);
  if (!mixture.ok()) {
    auto set = ParseDataSet(text);
    if (!set.ok()) return false;
    mixture = Mixture{{{.folder = "/a", .weight = 1, .set = *std::move(set)}}};
  }
  const std::string written = ToJson(*mixture);
  const auto again = MixtureFromJson(written);
  if (!again.ok() || ToJson(*again) != written) std::abort();
  if (!CheckMixture(*mixture, kContext).ok()) return true;
  const auto windows = WindowsOfSources(*mixture, kContext, 0.05);
  for (const SourceWindows& one : windows) {
    if (one.training * kContext > one.training_tokens) std::abort();
  }
  return true;
}
