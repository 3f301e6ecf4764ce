// A codec of a replay with `codecs: measured`: what it sends is always the same blob, and its time
// is slept.
#ifndef LONGHAUL_WORKER_PIPELINE_REPLAY_CODEC_H_
#define LONGHAUL_WORKER_PIPELINE_REPLAY_CODEC_H_

#include <memory>

#include "base/status.h"
#include "codec/codec.h"
#include "run/file/run_spec.h"

namespace longhaul::worker {

// Encodes noise of `shape` once, with `real`; Encode then copies that blob, whatever its input, and
// Decode leaves its output as it is. Both take as long as `times` say, and longer only where the
// copy does. Decode still refuses what is not such a blob. kInvalidArgument for a codec with state,
// whose blobs differ.
StatusOr<std::shared_ptr<const codec::Codec>> MakeReplayCodec(
    std::shared_ptr<const codec::Codec> real, const ReplaySpec::CodecTimes& times,
    const codec::Shape& shape);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_PIPELINE_REPLAY_CODEC_H_
