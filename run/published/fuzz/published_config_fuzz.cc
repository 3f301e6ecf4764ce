// Any text as config.json: read or refused. What was read is a model whose sizes can be reckoned
// with, and that can be written again, with the text and without, as the same model.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/fuzz/target.h"
#include "run/model/family.h"
#include "run/published/config.h"

LH_FUZZ_TARGET(published_config) {
  using namespace longhaul;             // NOLINT(google-build-using-namespace)
  using namespace longhaul::published;  // NOLINT(google-build-using-namespace)
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = ParseConfig(text, "config.json");
  if (!config.ok()) return false;
  const ModelSpec& model = config->model;
  const model::Family& family = model::FamilyOf(model);
  for (const model::Parameter& parameter : family.parameters(model, *model.vocabulary)) {
    if (parameter.shape.rows == 0 || parameter.shape.elements() > uint64_t{1} << 42) std::abort();
  }
  if (family.kept_by_block(model, {}).full == 0) std::abort();
  for (const std::string_view original : {std::string_view(), text}) {
    const auto written = WriteConfig(model, ExportType::kBf16, original);
    if (!written.ok()) std::abort();
    const auto again = ParseConfig(*written, "written");
    if (!again.ok() || again->model != model) std::abort();
  }
  return true;
}
