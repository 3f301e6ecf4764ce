// What a run sends over its boundaries.
#ifndef LONGHAUL_CODEC_BOUNDARY_SHAPE_H_
#define LONGHAUL_CODEC_BOUNDARY_SHAPE_H_

#include "base/config/run_spec.h"
#include "codec/codec.h"

namespace longhaul::codec {

// Of one microbatch's activation and of its gradient, between any two stages.
inline Shape BoundaryShape(const ModelSpec& model, const TrainSpec& train) {
  return {train.microbatch_size, model.context, model.hidden};
}
inline Shape BoundaryShape(const RunSpec& spec) {
  return BoundaryShape(spec.model, spec.train);
}

}  // namespace longhaul::codec

#endif  // LONGHAUL_CODEC_BOUNDARY_SHAPE_H_
