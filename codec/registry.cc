#include "codec/registry.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/nearest.h"
#include "codec/aqsgd/factory.h"
#include "codec/blob.h"
#include "codec/codec_string.h"
#include "codec/dither/factory.h"
#include "codec/fixed/factory.h"
#include "codec/gauss/factory.h"
#include "codec/plain/factory.h"
#include "codec/predict/factory.h"
#include "codec/python/factory.h"
#include "codec/taco/factory.h"
#include "codec/tah/factory.h"
#include "codec/zip/factory.h"

namespace longhaul::codec {
namespace {

std::string DescribeParameters(const Family& family) {
  if (family.parameters.empty()) return "no parameters";
  std::string text;
  for (const Parameter& parameter : family.parameters) {
    text += fmt::format("{}{}={} ({})", text.empty() ? "" : ", ", parameter.key, parameter.range,
                        parameter.preset);
  }
  return text;
}

Status UnknownCodec(std::string_view name) {
  const std::vector<std::string_view> names = CodecNames();
  return InvalidArgument("unknown codec '{}'{} (known codecs: {})", name, DidYouMean(name, names),
                         fmt::join(names, ", "));
}

Status CheckKeys(const Family& family, const CodecText& text) {
  if (family.names_class) return absl::OkStatus();
  std::vector<std::string_view> keys;
  for (const Parameter& parameter : family.parameters) keys.push_back(parameter.key);
  for (const auto& [key, value] : text.parameters) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    return InvalidArgument("codec '{}' has no parameter '{}'{} (it has: {})", family.name, key,
                           DidYouMean(key, keys), DescribeParameters(family));
  }
  return absl::OkStatus();
}

}  // namespace

std::span<const Family> Families() {
  static const auto& families = *new std::vector<Family>{
      plain::Row(plain::kNone),
      plain::Row(plain::kBf16),
      plain::Row(plain::kFp16),
      fixed::Row(),
      tah::Row(),
      gauss::Row(),
      dither::Row(),
      aqsgd::Row(),
      zip::Row(),
      taco::Row(),
      predict::Row(),
      python::Row(),
  };
  return families;
}

const Family* FindFamily(CodecId id) {
  const auto it = std::ranges::find(Families(), id, &Family::id);
  return it == Families().end() ? nullptr : &*it;
}

const Family* FindFamily(std::string_view name) {
  const auto it = std::ranges::find(Families(), name, &Family::name);
  return it == Families().end() ? nullptr : &*it;
}

std::string_view ToString(CodecId id) {
  const Family* const family = FindFamily(id);
  return family == nullptr ? "unknown codec" : family->name;
}

Status OutOfRange(const CodecText& text, std::string_view key) {
  const Family& family = *FindFamily(text.name);
  return InvalidArgument("'{}': '{}' is out of range (codec '{}' has: {})", text.text, key,
                         family.name, DescribeParameters(family));
}

StatusOr<std::unique_ptr<const Codec>> ParseCodec(std::string_view text) {
  // Only a family that leaves work to another codec has a '/' in its strings.
  std::string_view own = text, other;
  const Family* family = FindFamily(text.substr(0, text.find_first_of(":/")));
  if (family != nullptr && !family->other.empty()) {
    const size_t slash = text.find('/');
    own = text.substr(0, slash);
    other = slash == std::string_view::npos ? family->other : text.substr(slash + 1);
  }
  std::string with_key;
  if (family != nullptr && family->names_class && own.size() > family->name.size() + 1) {
    with_key = fmt::format("{}:class={}", family->name, own.substr(family->name.size() + 1));
    own = with_key;
  }
  LH_ASSIGN_OR_RETURN(CodecText parts, SplitCodecString(own));
  if (!with_key.empty()) parts.text = text;
  parts.other = other;
  family = FindFamily(parts.name);
  if (family == nullptr) return UnknownCodec(parts.name);
  LH_RETURN_IF_ERROR(CheckKeys(*family, parts));
  return family->parse(parts);
}

StatusOr<std::unique_ptr<const Codec>> CodecOfBlob(std::span<const std::byte> blob) {
  LH_ASSIGN_OR_RETURN(const BlobHeader header, ParseBlobHeader(blob));
  const Family& family = *FindFamily(header.codec);
  if (family.from_payload == nullptr) return family.from_header(header);
  return family.from_payload(header, blob.subspan(kBlobHeaderBytes));
}

StatusOr<std::unique_ptr<const Codec>> CodecOfHeader(const BlobHeader& header) {
  const Family* const family = FindFamily(header.codec);
  if (family == nullptr) {
    return Internal("codec {} is in no family", static_cast<int>(header.codec));
  }
  if (family->from_header != nullptr) return family->from_header(header);
  return InvalidArgument(
      "the header of a blob of {} does not say how differences are coded; the whole "
      "blob does",
      family->name);
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
