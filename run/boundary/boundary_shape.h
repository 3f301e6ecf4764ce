// What a run sends over its boundaries.
#ifndef LONGHAUL_RUN_BOUNDARY_BOUNDARY_SHAPE_H_
#define LONGHAUL_RUN_BOUNDARY_BOUNDARY_SHAPE_H_

#include "codec/codec.h"
#include "run/file/run_spec.h"

namespace longhaul {

// Of one microbatch's activation and of its gradient, between any two stages.
inline codec::Shape BoundaryShape(const ModelSpec& model, const TrainSpec& train) {
  return {train.microbatch_size, model.context, model.hidden};
}
inline codec::Shape BoundaryShape(const RunSpec& spec) {
  return BoundaryShape(spec.model, spec.train);
}

}  // namespace longhaul

#endif  // LONGHAUL_RUN_BOUNDARY_BOUNDARY_SHAPE_H_
