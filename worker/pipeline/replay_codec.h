// A codec for replays with `codecs: measured`. A replay runs a plan without computing. The codec
// always sends the same blob, and sleeps for the time that the real codec took when it was
// measured.
#pragma once

#include <memory>

#include "base/status.h"
#include "codec/codec.h"
#include "run/file/run_spec.h"

namespace longhaul::worker {

// Encodes noise of `shape` once with `real`; of a class of Python, a blob of the largest size
// stands for its blobs, and the class does not run. The returned codec's Encode ignores its input
// and copies this blob. Its Decode only checks the blob's length and beginning; it writes no
// output. Encode and Decode last as long as `times` says, or longer if their work takes longer.
// kInvalidArgument: `real` has state, so that its blobs depend on earlier ones.
StatusOr<std::shared_ptr<const codec::Codec>> MakeReplayCodec(
    std::shared_ptr<const codec::Codec> real, const ReplaySpec::CodecTimes& times,
    const codec::Shape& shape);

}  // namespace longhaul::worker
