// What run files call the values of their choices.
#include <cstddef>
#include <string_view>

#include "run/file/run_spec.h"

namespace longhaul {
namespace {

// `words` stand in the order of the enum.
template <class T, size_t N>
std::string_view WordOf(T value, const std::string_view (&words)[N]) {
  const auto i = static_cast<size_t>(value);
  return i < N ? words[i] : "?";
}

}  // namespace

std::string_view ToString(ComputeDtype dtype) {
  return WordOf(dtype, {"fp32", "bf16", "auto"});
}
std::string_view ToString(EncryptKind kind) {
  return WordOf(kind, {"auto", "required", "off"});
}
std::string_view ToString(SendOrder order) {
  return WordOf(order, {"auto", "activations-first", "as-ready"});
}
std::string_view ToString(PlacementKind kind) {
  return WordOf(kind, {"auto", "names"});
}
std::string_view ToString(LostReplica what) {
  return WordOf(what, {"exact", "continue"});
}
std::string_view ToString(Recompute what) {
  return WordOf(what, {"none", "blocks", "stage"});
}
std::string_view ToString(OptimizerKind kind) {
  return WordOf(kind, {"adamw", "muon"});
}
std::string_view ToString(MomentDtype dtype) {
  return WordOf(dtype, {"fp32", "bf16"});
}
std::string_view ToString(LrScheduleKind kind) {
  return WordOf(kind, {"constant", "cosine", "linear", "wsd"});
}
std::string_view ToString(OnNonfinite what) {
  return WordOf(what, {"stop", "skip"});
}
std::string_view ToString(CleanValidation clean) {
  return WordOf(clean, {"always", "end", "never"});
}
std::string_view ToString(GroupCollective what) {
  return WordOf(what, {"none", "taco", "zip", "auto"});
}

}  // namespace longhaul
