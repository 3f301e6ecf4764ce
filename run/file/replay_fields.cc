#include "run/file/replay_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/yaml/yaml_text.h"

namespace longhaul {

const ReplaySpec::CodecTimes* ReplaySpec::TimesOf(std::string_view codec) const {
  const auto it = std::find_if(codec_times.begin(), codec_times.end(),
                               [&](const auto& one) { return one.codec == CodecFamily(codec); });
  return it == codec_times.end() ? nullptr : &*it;
}

namespace config {
namespace {

constexpr absl::Duration kLongest = absl::Hours(1);
constexpr size_t kLongestSource = 400;

enum class ReplayCodecs : uint8_t { kMeasured, kReal };

std::string_view ToString(ReplayCodecs codecs) {
  return codecs == ReplayCodecs::kReal ? "real" : "measured";
}

Field Time(std::string key, absl::Duration* target) {
  return DurationField(std::move(key), target, absl::ZeroDuration(), kLongest);
}

std::string CheckSource(std::string_view text) {
  if (!text.empty() && text.size() <= kLongestSource) return "";
  return fmt::format("expected 1 to {} characters that say what was measured where, got {}",
                     kLongestSource, text.size());
}

// `codec_times: { tah: { encode: 20us, decode: 11us }, ... }`
Field CodecTimesField(std::vector<ReplaySpec::CodecTimes>* target, const CodecCheck& check) {
  Field field;
  field.key = "codec_times";
  field.expected = "a mapping of codecs without parameters, such as { tah: { encode: 20us, ... } }";
  field.read = [target, check, expected = field.expected](Reader& reader, const YAML::Node& node,
                                                          const std::string& path) {
    if (!node.IsMap()) {
      reader.FailExpected(node, path, expected);
      return;
    }
    for (const auto& entry : node) {
      const auto codec = ReadScalar(reader, entry.first, path, "a codec's name");
      if (!codec) continue;
      const Status known = check ? check(*codec) : absl::OkStatus();
      if (!known.ok() || CodecFamily(*codec) != *codec) {
        reader.Fail(entry.first,
                    fmt::format("{}: expected a codec without parameters, got '{}'{}", path,
                                codec->substr(0, 100),
                                known.ok() ? "" : fmt::format("; {}", Message(known))));
        continue;
      }
      // Those that an override does not name stay.
      const auto it = std::find_if(target->begin(), target->end(),
                                   [&](const auto& one) { return one.codec == *codec; });
      ReplaySpec::CodecTimes times = it == target->end() ? ReplaySpec::CodecTimes{*codec} : *it;
      const std::string name = fmt::format("{}.{}", path, *codec);
      reader.ReadMap(entry.second, name,
                     {Time("encode", &times.encode), Time("decode", &times.decode)});
      for (const char* key : {"encode", "decode"}) {
        const std::string full = fmt::format("{}.{}", name, key);
        if (reader.Has(full)) continue;
        reader.Fail(entry.first, fmt::format("the key '{}' is missing; expected a duration such as "
                                             "20us",
                                             full));
      }
      if (it == target->end()) {
        target->push_back(std::move(times));
      } else {
        *it = std::move(times);
      }
    }
  };
  return field;
}

Table ReplayTable(ReplaySpec* replay, ReplayCodecs* codecs, const CodecCheck& check) {
  return {
      Text("source", &replay->source, "a text that says what was measured where", CheckSource),
      Section("layers", {Time("embedding_forward", &replay->embedding_forward),
                         Time("embedding_backward", &replay->embedding_backward),
                         Time("block_forward", &replay->block_forward),
                         Time("block_backward", &replay->block_backward),
                         Time("head_forward", &replay->head_forward),
                         Time("head_backward", &replay->head_backward),
                         Time("optimizer", &replay->optimizer)}),
      Choice("codecs", codecs, std::vector{ReplayCodecs::kMeasured, ReplayCodecs::kReal}),
      CodecTimesField(&replay->codec_times, check),
      BytesField("memory", &replay->memory_bytes),
  };
}

void CheckCodec(const ReplaySpec& replay, const char* key, const std::string& codec,
                Reader& reader) {
  if (codec == kAutoCodec) return;  // a plan chooses among those that have times
  if (!reader.Sound({key}) || replay.TimesOf(codec) != nullptr) return;
  reader.Fail(reader.PlaceOf("replay.codec_times"),
              fmt::format("replay.codec_times: expected times of '{}', the codec of {}, because "
                          "codecs are replayed as measured; add {}: {{ encode: ..., decode: ... }} "
                          "or set replay.codecs to real",
                          CodecFamily(codec), key, CodecFamily(codec)));
}

}  // namespace

Field Replay(std::optional<ReplaySpec>* target, const CodecCheck& check) {
  Field field;
  field.key = "replay";
  field.expected = "a mapping with source, layers, codecs, codec_times, memory";
  field.read = [target, check](Reader& reader, const YAML::Node& node, const std::string& path) {
    ReplaySpec replay = target->value_or(ReplaySpec{});
    ReplayCodecs codecs = replay.real_codecs ? ReplayCodecs::kReal : ReplayCodecs::kMeasured;
    reader.ReadMap(node, path, ReplayTable(&replay, &codecs, check));
    replay.real_codecs = codecs == ReplayCodecs::kReal;
    *target = std::move(replay);
  };
  return field;
}

void CheckReplay(const RunSpec& spec, Reader& reader) {
  if (!spec.replay) return;
  const ReplaySpec& replay = *spec.replay;
  if (reader.Sound({"replay.source"}) && replay.source.empty()) {
    reader.Fail(reader.PlaceOf("replay"),
                "replay.source: expected a text that says what was measured where, got nothing; it "
                "stands beside every result");
  }
  for (const auto& [key, time] :
       {std::pair{"replay.layers.block_forward", replay.block_forward},
        std::pair{"replay.layers.block_backward", replay.block_backward}}) {
    if (time > absl::ZeroDuration() || !reader.Sound({key})) continue;
    reader.Fail(reader.PlaceOf(key),
                fmt::format("{}: expected the measured time of one layer and microbatch, such as "
                            "870us, got nothing or 0",
                            key));
  }
  if (reader.Sound({"validation.every"}) && spec.validation.every > 0) {
    reader.Fail(reader.PlaceOf("validation.every"),
                fmt::format("validation.every: a replay learns nothing and has no losses; expected "
                            "0 or nothing, got {}",
                            spec.validation.every));
  }
  if (replay.real_codecs || !reader.Sound({"replay.codecs", "replay.codec_times"})) return;
  CheckCodec(replay, "links.forward", spec.links.codecs.forward, reader);
  CheckCodec(replay, "links.backward", spec.links.codecs.backward, reader);
  for (const auto& [worker, exception] : spec.links.by_worker) {
    CheckCodec(replay, "links.workers", exception.codecs.forward, reader);
    CheckCodec(replay, "links.workers", exception.codecs.backward, reader);
  }
}

std::string ReplayYaml(const std::optional<ReplaySpec>& replay) {
  if (!replay) return "";
  std::string out = fmt::format(
      "replay:\n"
      "  source: {}\n"
      "  layers:\n"
      "    embedding_forward: {}\n"
      "    embedding_backward: {}\n"
      "    block_forward: {}\n"
      "    block_backward: {}\n"
      "    head_forward: {}\n"
      "    head_backward: {}\n"
      "    optimizer: {}\n"
      "  codecs: {}\n"
      "  memory: {}\n",
      Quote(replay->source), Exact(replay->embedding_forward), Exact(replay->embedding_backward),
      Exact(replay->block_forward), Exact(replay->block_backward), Exact(replay->head_forward),
      Exact(replay->head_backward), Exact(replay->optimizer),
      replay->real_codecs ? "real" : "measured", ExactBytes(replay->memory_bytes));
  if (replay->codec_times.empty()) return out;
  out += "  codec_times:\n";
  for (const ReplaySpec::CodecTimes& one : replay->codec_times) {
    out += fmt::format("    {}: {{ encode: {}, decode: {} }}\n", Quote(one.codec),
                       Exact(one.encode), Exact(one.decode));
  }
  return out;
}

}  // namespace config
}  // namespace longhaul
