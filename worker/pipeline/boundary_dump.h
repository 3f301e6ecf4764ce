// Writes boundary tensors of a run as .npy files, for measuring codecs on real tensors. At every
// n-th training step the sending stage writes the first microbatch's activations and gradients;
// with sequence chunks ("slices"), only the first chunk's.
//
//   FOLDER/<run>/step000064-boundary1-forward.npy      fp32, (samples, tokens, channels)
//
// Threads: any. If a file cannot be written, it logs a warning and the run goes on.
#pragma once

#include <cstdint>
#include <string>

#include "base/ids.h"
#include "codec/codec.h"
#include "worker/pipeline/pass.h"

namespace longhaul::worker {

struct BoundaryDumpOptions {
  std::string folder;
  uint64_t every = 1;  // steps
};

class BoundaryDump {
 public:
  BoundaryDump(const BoundaryDumpOptions& options, const RunId& run);

  bool Wants(const Pass& pass, const Slice& slice) const;
  void Write(const Pass& pass, EdgeId edge, Direction direction,
             const codec::TensorView& tensor) const;

 private:
  std::string folder_;
  uint64_t every_;
};

}  // namespace longhaul::worker
