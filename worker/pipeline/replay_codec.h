// A codec for replays with `codecs: measured`: it always sends the same blob, and sleeps for the
// measured time.
#pragma once

#include <memory>

#include "base/status.h"
#include "codec/codec.h"
#include "run/file/run_spec.h"

namespace longhaul::worker {

// Encodes noise of `shape` once with `real`. Encode then copies that blob, whatever its input;
// Decode checks the blob and does not change its output. Both take the time in `times`, or longer
// if the copy takes longer. kInvalidArgument for a codec with state, whose blobs differ.
StatusOr<std::shared_ptr<const codec::Codec>> MakeReplayCodec(
    std::shared_ptr<const codec::Codec> real, const ReplaySpec::CodecTimes& times,
    const codec::Shape& shape);

}  // namespace longhaul::worker
