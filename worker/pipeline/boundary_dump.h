// Boundary tensors of runs as .npy files, for measuring codecs on them: of every n-th training step
// the first microbatch's activations and gradients, as the stage that sends them computed them; of
// its first slice, where it has several.
//
//   FOLDER/<run>/step000064-boundary1-forward.npy      fp32, (samples, tokens, channels)
//
// Threads: any. A file that cannot be written is a warning in the log: the run is worth more.
#ifndef LONGHAUL_WORKER_PIPELINE_BOUNDARY_DUMP_H_
#define LONGHAUL_WORKER_PIPELINE_BOUNDARY_DUMP_H_

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

#endif  // LONGHAUL_WORKER_PIPELINE_BOUNDARY_DUMP_H_
