// What a replay needs, and what it cannot be.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "run/file/run_spec_checks.h"

namespace longhaul {

const ReplaySpec::CodecTimes* ReplaySpec::TimesOf(const CodecSpec& codec) const {
  const auto it = std::find_if(codec_times.begin(), codec_times.end(),
                               [&](const auto& one) { return one.codec == codec.family(); });
  return it == codec_times.end() ? nullptr : &*it;
}

namespace config {
namespace {

void CheckCodec(const ReplaySpec& replay, const char* key, const CodecSpec& codec, Reader& reader) {
  if (IsAuto(codec)) return;  // a plan chooses among those that have times
  if (!reader.Sound({key}) || replay.TimesOf(codec) != nullptr) return;
  reader.Fail(reader.PlaceOf("replay.codec_times"),
              fmt::format("replay.codec_times: expected times of '{}', the codec of {}, because "
                          "codecs are replayed as measured; add {}: {{ encode: ..., decode: ... }} "
                          "or set replay.codecs to real",
                          codec.family(), key, codec.family()));
}

}  // namespace

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

}  // namespace config
}  // namespace longhaul
