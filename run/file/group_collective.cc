#include "run/file/group_collective.h"

#include <fmt/format.h>

#include <algorithm>

#include "codec/codec_string.h"

namespace longhaul {
namespace {

constexpr GroupCollective kCollectives[] = {GroupCollective::kNone, GroupCollective::kTaco,
                                            GroupCollective::kZip, GroupCollective::kAuto};

void SetTaco(std::string_view key, std::string_view value, codec::taco::Params* params,
             std::vector<std::string>* problems) {
  if (codec::taco::SetParameter(key, value, params)) return;
  if (key == "format") {
    problems->push_back(
        fmt::format("expected e4m3, e5m2 or int8 as the format of taco, got '{}'", value));
  } else if (key == "block") {
    problems->push_back(
        fmt::format("expected 32, 64, 128, 256 or 512 as the block of taco, got '{}'", value));
  } else {
    problems->push_back(fmt::format("expected format or block as a key of taco, got '{}'", key));
  }
}

}  // namespace

GroupCompression ReadGroupCompression(std::string_view text, std::vector<std::string>* problems) {
  const std::string_view word = text.substr(0, text.find(':'));
  const auto* const found = std::ranges::find_if(
      kCollectives, [word](GroupCollective what) { return ToString(what) == word; });
  if (found == std::end(kCollectives)) {
    problems->push_back(fmt::format("expected one of none, taco, zip, auto, got '{}'", text));
    return {};
  }
  GroupCompression compression(*found);
  if (word.size() == text.size()) return compression;
  if (compression.what != GroupCollective::kTaco) {
    problems->push_back(
        fmt::format("expected nothing behind {}, which has no options, got '{}'", word, text));
    return compression;
  }
  const StatusOr<codec::CodecText> parts = codec::SplitCodecString(text);
  if (!parts.ok()) {
    problems->emplace_back(Message(parts.status()));
    return compression;
  }
  for (const auto& [key, value] : parts->parameters) {
    SetTaco(key, value, &compression.taco, problems);
  }
  return compression;
}

std::string ToString(const GroupCompression& compression) {
  if (compression.taco == codec::taco::Params()) return std::string(ToString(compression.what));
  return codec::taco::CodecString(compression.taco);
}

}  // namespace longhaul
