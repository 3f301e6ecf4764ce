// longhaul-codec errors and ablate: what codecs, and variants of tah and taco that no codec string
// can say, lose of the same tensors.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "codec/registry.h"
#include "codec/taco/reference.h"
#include "codec/tah/reference.h"
#include "codec/tile.h"
#include "codec/tool/commands.h"
#include "codec/tool/measure.h"
#include "codec/tool/samples.h"

namespace longhaul::codec {
namespace {

struct Variant {
  std::string group;  // what is varied
  std::string name;   // canonical codec string, or that with what it cannot say
  std::function<StatusOr<Errors>(const NpyArray& array)> measure;
};

StatusOr<Variant> OfCodec(const std::string& group, const std::string& text,
                          const ToolOptions& options) {
  LH_ASSIGN_OR_RETURN(const BothEnds codec, OpenCodec(text, options.python));
  return Variant{group, codec.sender->name(), [codec, seed = options.seed](const NpyArray& array) {
                   Context context;
                   context.seed = seed;
                   return MeasureCodec(codec, array, context);
                 }};
}

// By the double-precision reference. `bytes`: what a format for it would take.
Variant OfReference(const std::string& group, const std::string& name, const tah::Params& params,
                    const tah::Ablation& ablation,
                    const std::function<uint64_t(const Shape&, const tah::Params&)>& bytes) {
  return {group, name, [=](const NpyArray& array) -> StatusOr<Errors> {
            LH_ASSIGN_OR_RETURN(const NpyArray wide, Widen(array));
            const std::span<const float> x = Floats(wide);
            const tah::ReferenceResult result =
                tah::Reference(std::vector<double>(x.begin(), x.end()), array.shape, params,
                               nullptr, nullptr, ablation);
            const std::vector<float> decoded(result.decoded.begin(), result.decoded.end());
            Errors errors = CompareArrays(x, decoded);
            errors.bits_per_element = BitsPerElement(bytes(array.shape, params), array.shape);
            return errors;
          }};
}

// taco without some of its steps, on elements that are `factor` times as large.
Variant OfTacoReference(const std::string& group, const std::string& name,
                        const taco::Ablation& ablation, double factor) {
  return {group, name, [=](const NpyArray& array) -> StatusOr<Errors> {
            LH_ASSIGN_OR_RETURN(const NpyArray wide, Widen(array));
            const std::span<const float> x = Floats(wide);
            std::vector<double> scaled(x.begin(), x.end());
            for (double& value : scaled) value *= factor;
            std::vector<double> decoded = taco::Reference(scaled, {}, ablation).decoded;
            for (double& value : decoded) value /= factor;
            Errors errors = CompareArrays(x, std::vector<float>(decoded.begin(), decoded.end()));
            const taco::Layout layout = taco::MakeLayout(x.size(), {});
            const uint64_t scales = ablation.scale || ablation.rescale ? layout.codes : 0;
            errors.bits_per_element =
                BitsPerElement(kBlobHeaderBytes + scales + layout.end - layout.codes, array.shape);
            return errors;
          }};
}

std::vector<Variant> TacoAblations() {
  const std::vector<std::pair<std::string, taco::Ablation>> variants = {
      {"plain cast to E4M3", {.transform = false, .rescale = false, .scale = false}},
      {"scale of a block alone", {.transform = false, .rescale = false}},
      {"transform alone", {.rescale = false, .scale = false}},
      {"transform of what alpha has rescaled", {.scale = false}},
      {"transform and scale, without alpha", {.rescale = false}},
      {"all, as the paper has it", {}}};
  std::vector<Variant> result;
  for (const auto& [group, factor] :
       {std::pair{"steps of taco", 1.0}, {"the same, elements 4,096 times smaller", 0x1p-12}}) {
    for (const auto& [name, ablation] : variants) {
      result.push_back(OfTacoReference(group, name, ablation, factor));
    }
  }
  return result;
}

uint64_t WithoutPivots(const Shape& shape, const tah::Params& params) {
  const tah::Layout layout = tah::MakeLayout(shape, params);
  return tah::EncodedBytes(shape, params) - (layout.precision - layout.pivots);
}

// Two bit planes in every tile and a third in some, instead of three and a fourth.
uint64_t WithABitLess(const Shape& shape, const tah::Params& params) {
  const tah::Layout layout = tah::MakeLayout(shape, params);
  return tah::EncodedBytes(shape, params) -
         AlignSection(shape.samples * layout.tiles * layout.plane_bytes);
}

StatusOr<std::vector<Variant>> OfCodecs(const std::string& group,
                                        const std::vector<std::string>& texts,
                                        const ToolOptions& options) {
  std::vector<Variant> variants;
  for (const std::string& text : texts) {
    LH_ASSIGN_OR_RETURN(Variant variant, OfCodec(group, text, options));
    variants.push_back(std::move(variant));
  }
  return variants;
}

StatusOr<std::vector<Variant>> Ablations(const ToolOptions& options) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> groups = {
      {"tile", {"tah:tile=32", "tah", "tah:tile=128"}},
      {"allocation tile", {"tah", "tah:alloc=256", "tah:alloc=token"}},
      {"share of INT4", {"tah:p=1", "tah", "tah:p=0.5", "tah:p=0"}},
      {"transform: never, outliers (tau), always",
       {"tah:tau=inf", "tah:tau=8", "tah:tau=4", "tah", "tah:tau=1.5", "tah:tau=0"}},
      {"the same, all INT4", {"tah:p=1,tau=inf", "tah:p=1", "tah:p=1,tau=0"}},
      {"4 bits for gradients",
       {"tah", "tah:rounding=stochastic", "fixed:bits=4", "fixed:bits=4,rounding=stochastic"}}};
  std::vector<Variant> variants;
  for (const auto& [group, texts] : groups) {
    LH_ASSIGN_OR_RETURN(std::vector<Variant> some, OfCodecs(group, texts, options));
    std::ranges::move(some, std::back_inserter(variants));
    if (group == "share of INT4") {
      const tah::Params fifth{.p_65536 = 13107};
      variants.push_back(
          OfReference(group, "tah, 20% INT3 and 80% INT2", fifth, {.low_bits = 2}, &WithABitLess));
    }
  }
  const std::string pivot = "pivot to slot 0: on, off";
  for (const auto& [text, tau] : {std::pair{"tah", 2.0f}, std::pair{"tah:tau=0", 0.0f}}) {
    LH_ASSIGN_OR_RETURN(variants.emplace_back(), OfCodec(pivot, text, options));
    variants.push_back(OfReference(pivot, variants.back().name + ", no pivot", {.tau = tau},
                                   {.swap_pivot = false}, &WithoutPivots));
  }
  std::ranges::move(TacoAblations(), std::back_inserter(variants));
  for (const auto& [group, texts] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"8 bits of taco", {"taco", "taco:format=e5m2", "taco:format=int8"}},
           {"block of taco",
            {"taco:block=32", "taco:block=64", "taco:block=128", "taco", "taco:block=512"}}}) {
    LH_ASSIGN_OR_RETURN(std::vector<Variant> some, OfCodecs(group, texts, options));
    std::ranges::move(some, std::back_inserter(variants));
  }
  return variants;
}

nlohmann::ordered_json ToJson(const std::string& name, const Shape& shape,
                              const std::vector<Variant>& variants,
                              const std::vector<Errors>& errors) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (size_t k = 0; k < variants.size(); ++k) {
    nlohmann::ordered_json row;
    if (!variants[k].group.empty()) row["group"] = variants[k].group;
    row["codec"] = variants[k].name;
    row["bits_per_element"] = errors[k].bits_per_element;
    row["relative_l2"] = errors[k].relative_l2;
    row["cosine"] = errors[k].cosine;
    rows.push_back(std::move(row));
  }
  return {{"tensor", name},
          {"shape", {shape.samples, shape.tokens, shape.channels}},
          {"codecs", std::move(rows)}};
}

constexpr int kNameWidth = 66;

// A table of one tensor, or of the ranges over several.
std::string Table(const std::string& title, const std::vector<Variant>& variants,
                  const std::vector<std::vector<Errors>>& of_tensors) {
  const bool ranges = of_tensors.size() > 1;
  std::string text = fmt::format("{}\n{:<{}} {:>12} {:>17} {:>10}\n", title, "", kNameWidth,
                                 "bits/element", "relative L2", ranges ? "cosine >=" : "cosine");
  std::string group;
  for (size_t k = 0; k < variants.size(); ++k) {
    if (variants[k].group != group) text += fmt::format("{}\n", group = variants[k].group);
    const auto by_l2 = [k](const auto& a, const auto& b) {
      return a[k].relative_l2 < b[k].relative_l2;
    };
    const auto [low, high] = std::ranges::minmax_element(of_tensors, by_l2);
    double bits = 0;
    double cosine = 1;
    for (const std::vector<Errors>& errors : of_tensors) {
      bits += errors[k].bits_per_element / static_cast<double>(of_tensors.size());
      cosine = std::min(cosine, errors[k].cosine);
    }
    const std::string error =
        ranges ? fmt::format("{:.4f} - {:.4f}", (*low)[k].relative_l2, (*high)[k].relative_l2)
               : fmt::format("{:.4f}", (*low)[k].relative_l2);
    text += fmt::format("{:<{}} {:>12.3f} {:>17} {:>10.6f}\n",
                        (group.empty() ? "" : "  ") + variants[k].name, kNameWidth, bits, error,
                        cosine);
  }
  return text + "\n";
}

StatusOr<std::string> Compare(const ToolOptions& options, const std::vector<Variant>& variants) {
  LH_ASSIGN_OR_RETURN(const std::vector<Sample> samples, SamplesOf(options));
  std::vector<std::vector<Errors>> of_tensors;
  for (const Sample& sample : samples) {
    std::vector<Errors>& errors = of_tensors.emplace_back();
    for (const Variant& variant : variants) {
      const StatusOr<Errors> measured = variant.measure(sample.array);
      if (!measured.ok()) return Annotate(measured.status(), sample.name);
      errors.push_back(*measured);
    }
  }
  if (options.json) {
    nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
    for (size_t k = 0; k < samples.size(); ++k) {
      tensors.push_back(ToJson(samples[k].name, samples[k].array.shape, variants, of_tensors[k]));
    }
    return nlohmann::ordered_json{{"tensors", std::move(tensors)}}.dump(2) + "\n";
  }
  if (options.summary) {
    return Table(fmt::format("{} tensors: mean bits, smallest and largest error", samples.size()),
                 variants, of_tensors);
  }
  std::string text;
  for (size_t k = 0; k < samples.size(); ++k) {
    const Shape& shape = samples[k].array.shape;
    text += Table(fmt::format("{}: {} x {} x {}", samples[k].name, shape.samples, shape.tokens,
                              shape.channels),
                  variants, {of_tensors[k]});
  }
  return text;
}

const std::vector<std::string>& DefaultCodecs() {
  static const auto& codecs = *new std::vector<std::string>{"none",
                                                            "bf16",
                                                            "fp16",
                                                            "fixed:bits=8",
                                                            "fixed:bits=6",
                                                            "fixed:bits=4",
                                                            "fixed:bits=4,rounding=stochastic",
                                                            "fixed:bits=3,rounding=stochastic",
                                                            "tah",
                                                            "tah:p=1,tau=inf",
                                                            "tah:p=1,tau=0",
                                                            "tah:p=0",
                                                            "tah:rounding=stochastic",
                                                            "gauss:bits=6",
                                                            "gauss:bits=5",
                                                            "gauss",
                                                            "gauss:bits=4,block=64",
                                                            "gauss:bits=4,block=512",
                                                            "gauss:bits=3",
                                                            "gauss:bits=3,block=64",
                                                            "gauss:bits=2",
                                                            "taco",
                                                            "taco:format=e5m2",
                                                            "taco:format=int8"};
  return codecs;
}

}  // namespace

StatusOr<std::string> CompareCodecs(const ToolOptions& options) {
  LH_ASSIGN_OR_RETURN(
      const std::vector<Variant> variants,
      OfCodecs("", options.codecs.empty() ? DefaultCodecs() : options.codecs, options));
  return Compare(options, variants);
}

StatusOr<std::string> Ablate(const ToolOptions& options) {
  LH_ASSIGN_OR_RETURN(const std::vector<Variant> variants, Ablations(options));
  return Compare(options, variants);
}

}  // namespace longhaul::codec
