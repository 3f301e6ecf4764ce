// Any text as a list of weights: read or refused, and written again as it was read. Of tensors that
// match a parameter of the model, Decode reads their own bytes alone.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/fuzz/target.h"
#include "run/model/family.h"
#include "run/published/config.h"
#include "run/published/weights.h"

LH_FUZZ_TARGET(published_weights) {
  using namespace longhaul;             // NOLINT(google-build-using-namespace)
  using namespace longhaul::published;  // NOLINT(google-build-using-namespace)
  constexpr uint64_t kMostDecoded = 1 << 16;
  const auto weights = FromJson({reinterpret_cast<const char*>(data), size});
  if (!weights.ok()) return false;
  const auto again = FromJson(ToJson(*weights));
  if (!again.ok() || *again != *weights) std::abort();
  const auto config = ParseConfig(weights->config_json, "config.json");
  if (!config.ok()) return true;
  const ModelSpec& model = config->model;
  const model::Part part{
      .first_layer = 0, .layers = std::min(model.layers, 2u), .embedding = true, .head = true};
  for (const auto& parameter : model::ParametersOf(model, *model.vocabulary, part)) {
    const auto tensor = TensorOf(*weights, model, parameter);
    const uint64_t elements = parameter.parameter.shape.elements();
    if (!tensor.ok() || (*tensor)->bytes > kMostDecoded) continue;
    if (elements > (*tensor)->bytes) std::abort();
    const std::vector<std::byte> bytes((*tensor)->bytes, std::byte{1});
    std::vector<float> values(elements);
    Decode(**tensor, bytes, parameter.parameter, values);
  }
  return true;
}
