#include "codec/registry.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "codec/aqsgd/factory.h"
#include "codec/blob.h"
#include "codec/codec_string.h"
#include "codec/fixed/factory.h"
#include "codec/gauss/factory.h"
#include "codec/plain/factory.h"
#include "codec/predict/factory.h"
#include "codec/taco/factory.h"
#include "codec/tah/factory.h"
#include "codec/zip/factory.h"

namespace longhaul::codec {
namespace {

using CodecPtr = std::unique_ptr<const Codec>;

struct Parameter {
  std::string_view key;
  std::string_view range;
  std::string_view preset;
};

struct Family {
  std::string_view name;
  std::string_view what;
  std::vector<Parameter> parameters;
  // "" or the parameter's key that is out of range.
  std::string_view (*parse)(const CodecString& text, CodecPtr* codec);
  StatusOr<CodecPtr> (*from_header)(const BlobHeader& header);
};

bool ParseTile(const std::string& text, uint32_t* tile) {
  return ParseUnsigned(text, tile) && (*tile == 32 || *tile == 64 || *tile == 128);
}

bool ParseRounding(const std::string& text, Rounding* rounding) {
  if (text != "nearest" && text != "stochastic") return false;
  *rounding = text == "nearest" ? Rounding::kNearest : Rounding::kStochastic;
  return true;
}

template <CodecId kId>
std::string_view ParsePlain(const CodecString& /*text*/, CodecPtr* codec) {
  *codec = plain::Create(kId);
  return "";
}

StatusOr<CodecPtr> PlainFromHeader(const BlobHeader& header) {
  return plain::Create(header.codec);
}

std::string_view ParseFixed(const CodecString& text, CodecPtr* codec) {
  fixed::Params params;
  for (const auto& [key, value] : text.parameters) {
    if (key == "bits" && !(ParseUnsigned(value, &params.bits) && params.bits >= fixed::kMinBits &&
                           params.bits <= fixed::kMaxBits)) {
      return "bits";
    }
    if (key == "tile" && !ParseTile(value, &params.tile)) return "tile";
    if (key == "rounding" && !ParseRounding(value, &params.rounding)) return "rounding";
  }
  *codec = fixed::Create(params);
  return "";
}

StatusOr<CodecPtr> FixedFromHeader(const BlobHeader& header) {
  LH_ASSIGN_OR_RETURN(const fixed::Params params, fixed::FromHeader(header.parameters));
  return fixed::Create(params);
}

bool ParseAlloc(const std::string& text, uint32_t* alloc) {
  if (text == "token") {
    *alloc = tah::kWholeToken;
    return true;
  }
  return ParseUnsigned(text, alloc) && *alloc > 0;
}

bool ParseShare(const std::string& text, uint32_t* p_65536) {
  double share = 0;
  if (!ParseReal(text, &share) || !(share >= 0 && share <= 1)) return false;
  *p_65536 = static_cast<uint32_t>(std::lround(share * 65536.0));
  return true;
}

bool ParseTau(const std::string& text, float* tau) {
  double value = 0;
  if (!ParseReal(text, &value) || std::isnan(value) || std::signbit(value)) return false;
  *tau = static_cast<float>(value);
  return true;
}

std::string_view ParseTah(const CodecString& text, CodecPtr* codec) {
  tah::Params params;
  bool alloc_given = false;
  for (const auto& [key, value] : text.parameters) {
    if (key == "p" && !ParseShare(value, &params.p_65536)) return "p";
    if (key == "tile" && !ParseTile(value, &params.tile)) return "tile";
    if (key == "alloc" && !ParseAlloc(value, &params.alloc)) return "alloc";
    if (key == "tau" && !ParseTau(value, &params.tau)) return "tau";
    if (key == "rounding" && !ParseRounding(value, &params.rounding)) return "rounding";
    alloc_given = alloc_given || key == "alloc";
  }
  if (!alloc_given) params.alloc = params.tile;
  if (params.alloc % params.tile != 0 || params.alloc > tah::kMaxAlloc) return "alloc";
  if (!tah::Possible(params)) return "tau";
  *codec = tah::Create(params);
  return "";
}

StatusOr<CodecPtr> TahFromHeader(const BlobHeader& header) {
  LH_ASSIGN_OR_RETURN(const tah::Params params, tah::FromHeader(header.parameters));
  return tah::Create(params);
}

std::string_view ParseGauss(const CodecString& text, CodecPtr* codec) {
  gauss::Params params;
  for (const auto& [key, value] : text.parameters) {
    uint32_t* target = key == "bits" ? &params.bits : &params.block;
    if (!ParseUnsigned(value, target) || !gauss::Possible(params)) {
      return key == "bits" ? "bits" : "block";
    }
  }
  *codec = gauss::Create(params);
  return "";
}

StatusOr<CodecPtr> GaussFromHeader(const BlobHeader& header) {
  LH_ASSIGN_OR_RETURN(const gauss::Params params, gauss::FromHeader(header.parameters));
  return gauss::Create(params);
}

std::string_view ParseAqsgd(const CodecString& text, CodecPtr* codec) {
  aqsgd::Params params;
  for (const auto& [key, value] : text.parameters) {
    if (key == "bits" && !(ParseUnsigned(value, &params.bits) && params.bits >= aqsgd::kMinBits &&
                           params.bits <= aqsgd::kMaxBits)) {
      return "bits";
    }
  }
  *codec = aqsgd::Create(params);
  return "";
}

StatusOr<CodecPtr> AqsgdFromHeader(const BlobHeader& header) {
  LH_ASSIGN_OR_RETURN(const aqsgd::Params params, aqsgd::FromHeader(header.parameters));
  return aqsgd::Create(params);
}

std::string_view ParseZip(const CodecString& /*text*/, CodecPtr* codec) {
  *codec = zip::Create();
  return "";
}

StatusOr<CodecPtr> ZipFromHeader(const BlobHeader& header) {
  if (header.parameters != CodecParameters{}) {
    return absl::InvalidArgumentError("the blob's parameters of zip are not zeros");
  }
  return zip::Create();
}

bool ParseFormat(const std::string& text, taco::Format* format) {
  for (const auto one : {taco::Format::kE4m3, taco::Format::kE5m2, taco::Format::kInt8}) {
    if (text != taco::ToString(one)) continue;
    *format = one;
    return true;
  }
  return false;
}

std::string_view ParseTaco(const CodecString& text, CodecPtr* codec) {
  taco::Params params;
  for (const auto& [key, value] : text.parameters) {
    if (key == "format" && !ParseFormat(value, &params.format)) return "format";
    if (key == "block" && !(ParseUnsigned(value, &params.block) && taco::Possible(params))) {
      return "block";
    }
  }
  *codec = taco::Create(params);
  return "";
}

StatusOr<CodecPtr> TacoFromHeader(const BlobHeader& header) {
  LH_ASSIGN_OR_RETURN(const taco::Params params, taco::FromHeader(header.parameters));
  return taco::Create(params);
}

constexpr std::string_view kPredict = "predict";

// "predict:pairs=0/gauss:bits=4": the text before and after the '/'. Nothing for other codecs.
struct PredictText {
  std::string_view own, other;
};
std::optional<PredictText> SplitPredict(std::string_view text) {
  const size_t slash = text.find('/');
  if (text.substr(0, text.find_first_of(":/")) != kPredict) return std::nullopt;
  if (slash == std::string_view::npos) return PredictText{text, "gauss"};
  return PredictText{text.substr(0, slash), text.substr(slash + 1)};
}

bool ParsePairs(const std::string& text, uint32_t* log2_pairs) {
  uint32_t pairs = 0;
  if (!ParseUnsigned(text, &pairs) || pairs == 1 || (pairs != 0 && !std::has_single_bit(pairs))) {
    return false;
  }
  *log2_pairs = pairs == 0 ? 0 : static_cast<uint32_t>(std::bit_width(pairs)) - 1;
  return true;
}

// "" or the key that is out of range.
std::string_view PredictParams(const CodecString& text, predict::Params* params) {
  for (const auto& [key, value] : text.parameters) {
    double rate = params->rate;
    const bool parsed = key == "pairs"   ? ParsePairs(value, &params->log2_pairs)
                        : key == "prior" ? ParseUnsigned(value, &params->prior)
                                         : ParseReal(value, &rate);
    params->rate = static_cast<float>(rate);
    if (!parsed || !predict::Possible(*params)) {
      return key == "pairs" ? "pairs" : key == "prior" ? "prior" : "rate";
    }
  }
  return "";
}

// Checks its own parameters alone: ParsePredictOver makes the codec.
std::string_view ParsePredict(const CodecString& text, CodecPtr* /*codec*/) {
  predict::Params params;
  return PredictParams(text, &params);
}

StatusOr<CodecPtr> PredictFromHeader(const BlobHeader& /*header*/) {
  return absl::InvalidArgumentError(
      "the header of a blob of predict does not say how differences are coded; the whole blob "
      "does");
}

StatusOr<CodecPtr> MakePredict(const predict::Params& params, CodecPtr other) {
  const bool remembers = other->MessageBytes({1, 1, 1}) > 0 || other->TableRows(1) > 0;
  if (!remembers) return predict::Create(params, std::move(other));
  return absl::InvalidArgumentError(
      fmt::format("expected a codec without state after predict's '/', got '{}'", other->name()));
}

StatusOr<CodecPtr> PredictOfBlob(const BlobHeader& header, std::span<const std::byte> blob) {
  LH_ASSIGN_OR_RETURN(const predict::Params params, predict::FromHeader(header.parameters));
  const std::span<const std::byte> payload = blob.subspan(kBlobHeaderBytes);
  LH_ASSIGN_OR_RETURN(const predict::Front front, predict::ReadFront(payload, header.shape));
  LH_ASSIGN_OR_RETURN(
      const BlobHeader within,
      predict::ReadOther(payload.subspan(predict::OtherOffset(header.shape, front.id_bytes))));
  if (within.codec != predict::OtherCodec(header.parameters) || within.codec == header.codec) {
    return absl::InvalidArgumentError(
        fmt::format("a blob of predict with one of {} within, which its header does not announce",
                    ToString(within.codec)));
  }
  LH_ASSIGN_OR_RETURN(CodecPtr other, CodecOfHeader(within));
  return MakePredict(params, std::move(other));
}

// By the names of CodecId.
const std::vector<Family>& Families() {
  static const auto& families = *new std::vector<Family>{
      {"none", "fp32", {}, &ParsePlain<CodecId::kNone>, &PlainFromHeader},
      {"bf16", "bfloat16", {}, &ParsePlain<CodecId::kBf16>, &PlainFromHeader},
      {"fp16", "IEEE half precision", {}, &ParsePlain<CodecId::kFp16>, &PlainFromHeader},
      {"fixed",
       "fixed point per tile",
       {{"bits", "3..10", "6"},
        {"tile", "32|64|128", "64"},
        {"rounding", "nearest|stochastic", "nearest"}},
       &ParseFixed,
       &FixedFromHeader},
      {"tah",
       "TAH-Quant: 3 or 4 bits by entropy, Hadamard transform",
       {{"p", "0..1", "0.8"},
        {"tile", "32|64|128", "64"},
        {"alloc", "a multiple of tile up to 1048576, or token", "tile"},
        {"tau", "0..1000 or inf", "2"},
        {"rounding", "nearest|stochastic", "nearest"}},
       &ParseTah,
       &TahFromHeader},
      {"gauss",
       "quantizer of normal values after a Hadamard transform",
       {{"bits", "2..6", "4"}, {"block", "64|128|256|512", "128"}},
       &ParseGauss,
       &GaussFromHeader},
      {"aqsgd",
       "AQ-SGD: differences to what was sent of the sample before; runs only",
       {{"bits", "2..8", "4"}},
       &ParseAqsgd,
       &AqsgdFromHeader},
      {"zip", "bfloat16 without loss, in about 11.3 bits", {}, &ParseZip, &ZipFromHeader},
      {"taco",
       "TACO: 8-bit floating point after a Hadamard transform, for collectives",
       {{"format", "e4m3|e5m2|int8", "e4m3"}, {"block", "32|64|128|256|512", "256"}},
       &ParseTaco,
       &TacoFromHeader},
      {kPredict,
       "differences to what tokens predict, coded by what follows a '/' (gauss); runs only",
       {{"pairs", "0 or a power of two up to 1048576", "65536"},
        {"rate", "0..1", "0.02"},
        {"prior", "0..1000", "0"}},
       &ParsePredict,
       &PredictFromHeader},
  };
  return families;
}

std::string DescribeParameters(const Family& family) {
  if (family.parameters.empty()) return "no parameters";
  std::string text;
  for (const Parameter& parameter : family.parameters) {
    text += fmt::format("{}{}={} ({})", text.empty() ? "" : ", ", parameter.key, parameter.range,
                        parameter.preset);
  }
  return text;
}

std::string DidYouMean(std::string_view word, std::span<const std::string_view> candidates) {
  const std::string_view nearest = Nearest(word, candidates);
  return nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest);
}

Status UnknownCodec(std::string_view name) {
  const std::vector<std::string_view> names = CodecNames();
  return absl::InvalidArgumentError(fmt::format("unknown codec '{}'{} (known codecs: {})", name,
                                                DidYouMean(name, names), fmt::join(names, ", ")));
}

Status CheckKeys(const Family& family, const CodecString& text) {
  std::vector<std::string_view> keys;
  for (const Parameter& parameter : family.parameters) keys.push_back(parameter.key);
  for (const auto& [key, value] : text.parameters) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    return absl::InvalidArgumentError(fmt::format("codec '{}' has no parameter '{}'{} (it has: {})",
                                                  family.name, key, DidYouMean(key, keys),
                                                  DescribeParameters(family)));
  }
  return absl::OkStatus();
}

// The text before '/' alone.
StatusOr<CodecPtr> ParseOne(std::string_view text) {
  LH_ASSIGN_OR_RETURN(const CodecString parts, SplitCodecString(text));
  for (const Family& family : Families()) {
    if (family.name != parts.name) continue;
    LH_RETURN_IF_ERROR(CheckKeys(family, parts));
    CodecPtr codec;
    const std::string_view wrong = family.parse(parts, &codec);
    if (wrong.empty()) return codec;
    return absl::InvalidArgumentError(fmt::format("'{}': '{}' is out of range (codec '{}' has: {})",
                                                  text, wrong, family.name,
                                                  DescribeParameters(family)));
  }
  return UnknownCodec(parts.name);
}

StatusOr<CodecPtr> ParsePredictOver(std::string_view text, const PredictText& parts) {
  LH_RETURN_IF_ERROR(ParseOne(parts.own).status());
  LH_ASSIGN_OR_RETURN(const CodecString own, SplitCodecString(parts.own));
  if (SplitPredict(parts.other)) {
    return absl::InvalidArgumentError(
        fmt::format("'{}': predict does not code the differences of predict", text));
  }
  predict::Params params;
  LH_CHECK(PredictParams(own, &params).empty(), "it was parsed: {}", parts.own);
  LH_ASSIGN_OR_RETURN(CodecPtr other, ParseOne(parts.other));
  return MakePredict(params, std::move(other));
}

}  // namespace

StatusOr<std::unique_ptr<const Codec>> ParseCodec(std::string_view text) {
  const std::optional<PredictText> predict = SplitPredict(text);
  return predict ? ParsePredictOver(text, *predict) : ParseOne(text);
}

Status CheckCodec(std::string_view text) {
  return ParseCodec(text).status();
}

StatusOr<std::unique_ptr<const Codec>> CodecOfBlob(std::span<const std::byte> blob) {
  LH_ASSIGN_OR_RETURN(const BlobHeader header, ParseBlobHeader(blob));
  return header.codec == CodecId::kPredict ? PredictOfBlob(header, blob) : CodecOfHeader(header);
}

StatusOr<std::unique_ptr<const Codec>> CodecOfHeader(const BlobHeader& header) {
  for (const Family& family : Families()) {
    if (family.name == ToString(header.codec)) return family.from_header(header);
  }
  return absl::InternalError(fmt::format("codec {} is in no family", ToString(header.codec)));
}

std::vector<std::string_view> CodecNames() {
  std::vector<std::string_view> names;
  for (const Family& family : Families()) names.push_back(family.name);
  return names;
}

std::string DescribeCodecs() {
  std::string text;
  for (const Family& family : Families()) {
    text += fmt::format("{}: {}. {}\n", family.name, family.what, DescribeParameters(family));
  }
  return text;
}

}  // namespace longhaul::codec
