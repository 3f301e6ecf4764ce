// Writes boundary tensors of a run as .npy files, to measure codecs on real tensors. At every n-th
// training step each stage writes the activations and gradients that it sends for the first
// microbatch. With sequence chunks ("slices"), it writes only the first chunk.
//
//   FOLDER/<run>/step000064-boundary1-forward.npy      edge 1; fp32, (samples, tokens, channels)
//
// Only for tensors in host memory. Threads: any. If a file cannot be written, Write logs a warning,
// and the run goes on.
#pragma once

#include <cstdint>
#include <string>

#include "base/ids.h"
#include "codec/codec.h"
#include "worker/pipeline/pass.h"

namespace longhaul::worker {

struct BoundaryDumpOptions {
  std::string folder;  // created if missing
  uint64_t every = 1;  // steps whose number is a multiple of `every` are written; at least 1
};

class BoundaryDump {
 public:
  BoundaryDump(const BoundaryDumpOptions& options, const RunId& run);

  // Returns true if the caller must pass this tensor to Write.
  bool Wants(const Pass& pass, const Slice& slice) const;
  void Write(const Pass& pass, EdgeId edge, Direction direction,
             const codec::TensorView& tensor) const;

 private:
  std::string folder_;
  uint64_t every_;
};

}  // namespace longhaul::worker
