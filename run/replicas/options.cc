#include "run/replicas/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <vector>

#include "base/nearest.h"
#include "codec/codec_string.h"

namespace longhaul::replicas {
namespace {

constexpr std::array<std::string_view, 5> kGradientForms = {"none", "bf16", "sdp4bit", "tagc",
                                                            "local-sgd"};
constexpr std::array<std::string_view, 3> kParameterForms = {"fp32", "bf16", "difference4"};

template <size_t kCount>
StatusOr<size_t> Find(std::string_view key, std::string_view name,
                      const std::array<std::string_view, kCount>& names) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<size_t>(std::distance(names.begin(), found));
  return InvalidArgument("{}: '{}' is not one of {}{}", key, name, fmt::join(names, ", "),
                         DidYouMean(name, names));
}

// What a key says, and where it goes.
struct Key {
  std::string_view name;
  std::string_view expected;
  bool (*set)(std::string_view value, GradientOptions* options);
};

bool SetFeedback(std::string_view value, GradientOptions* options) {
  options->feedback = value == "on";
  return value == "on" || value == "off";
}
bool SetKeep(std::string_view value, GradientOptions* options) {
  // Above, positions alone cost more than values save.
  constexpr double kMost = 0.25;
  return codec::ParseReal(value, &options->keep) && options->keep > 0 && options->keep <= kMost;
}
bool SetLeast(std::string_view value, GradientOptions* options) {
  return codec::ParseUnsigned(value, &options->least);
}
bool SetOwner(std::string_view value, GradientOptions* options) {
  options->owner_is_sparse = value == "sparse";
  return value == "dense" || value == "sparse";
}
bool SetSteps(std::string_view value, GradientOptions* options) {
  return codec::ParseUnsigned(value, &options->local.steps) && options->local.steps > 0;
}
bool SetDelay(std::string_view value, GradientOptions* options) {
  double& delay = options->local.delay;
  return codec::ParseReal(value, &delay) && delay >= 0 && delay < 1;
}
bool SetRate(std::string_view value, GradientOptions* options) {
  double& rate = options->local.rate;
  return codec::ParseReal(value, &rate) && rate > 0 && rate <= 10;
}
bool SetMomentum(std::string_view value, GradientOptions* options) {
  double& momentum = options->local.momentum;
  return codec::ParseReal(value, &momentum) && momentum >= 0 && momentum < 1;
}

constexpr Key kFeedback = {"feedback", "on or off", SetFeedback};
constexpr Key kOfSdp4bit[] = {kFeedback};
constexpr Key kOfTagc[] = {{"keep", "a share above 0 and up to 0.25", SetKeep},
                           {"least", "a number of elements", SetLeast},
                           {"owner", "dense or sparse", SetOwner}};
constexpr Key kOfLocalSgd[] = {{"steps", "a number from 1", SetSteps},
                               {"delay", "a share of the steps, below 1", SetDelay},
                               {"rate", "a number above 0 and up to 10", SetRate},
                               {"momentum", "a number from 0, below 1", SetMomentum},
                               kFeedback};

std::span<const Key> KeysOf(GradientForm form) {
  switch (form) {
    case GradientForm::kSdp4bit:
      return kOfSdp4bit;
    case GradientForm::kTagc:
      return kOfTagc;
    case GradientForm::kLocalSgd:
      return kOfLocalSgd;
    default:
      return {};
  }
}

Status Set(std::string_view key, std::string_view value, GradientOptions* options) {
  const std::string_view form = kGradientForms[static_cast<size_t>(options->form)];
  std::vector<std::string_view> names;
  for (const Key& known : KeysOf(options->form)) {
    names.push_back(known.name);
    if (known.name != key) continue;
    if (known.set(value, options)) return absl::OkStatus();
    return InvalidArgument("gradients: {} of {} is {}, not '{}'", key, form, known.expected, value);
  }
  return absl::InvalidArgumentError(
      names.empty() ? fmt::format("gradients: {} has no keys, not even '{}'", form, key)
                    : fmt::format("gradients: {} has no key '{}', but {}", form, key,
                                  fmt::join(names, ", ")));
}

}  // namespace

StatusOr<GradientOptions> ParseGradients(std::string_view text) {
  LH_ASSIGN_OR_RETURN(const codec::CodecText parts, codec::SplitCodecString(text));
  LH_ASSIGN_OR_RETURN(const size_t form, Find("gradients", parts.name, kGradientForms));
  GradientOptions options;
  options.form = static_cast<GradientForm>(form);
  // Measured (tests/bench/transport/replicas/convergence.cc): it helps differences of many steps,
  // which have no noise that would hide what rounding does, and not gradients.
  options.feedback = options.form == GradientForm::kLocalSgd;
  for (const auto& [key, value] : parts.parameters) {
    LH_RETURN_IF_ERROR(Set(key, value, &options));
  }
  return options;
}

StatusOr<ParameterForm> ParseParameters(std::string_view text) {
  LH_ASSIGN_OR_RETURN(const codec::CodecText parts, codec::SplitCodecString(text));
  LH_ASSIGN_OR_RETURN(const size_t form, Find("parameters", parts.name, kParameterForms));
  if (!parts.parameters.empty()) {
    return InvalidArgument("parameters: '{}' has no keys; leave out what is after ':'", parts.name);
  }
  return static_cast<ParameterForm>(form);
}

std::string ToString(const GradientOptions& options) {
  const std::string_view name = kGradientForms[static_cast<size_t>(options.form)];
  switch (options.form) {
    case GradientForm::kSdp4bit:
      return fmt::format("{}:feedback={}", name, options.feedback ? "on" : "off");
    case GradientForm::kTagc:
      return fmt::format("{}:keep={},least={}{}", name, options.keep, options.least,
                         options.owner_is_sparse ? ",owner=sparse" : "");
    case GradientForm::kLocalSgd:
      return fmt::format("{}:steps={},delay={},rate={},momentum={},feedback={}", name,
                         options.local.steps, options.local.delay, options.local.rate,
                         options.local.momentum, options.feedback ? "on" : "off");
    default:
      return std::string(name);
  }
}

std::string_view ToString(ParameterForm form) {
  return kParameterForms[static_cast<size_t>(form)];
}

}  // namespace longhaul::replicas
