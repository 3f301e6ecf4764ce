#include "coordinator/state/layer_times.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "run/file/keys.h"

namespace longhaul::coordinator {
bool IsPlausible(const v1::LayerTimes& times) {
  std::vector<double> values = {times.embedding_forward(),
                                times.embedding_backward(),
                                times.block_forward(),
                                times.block_backward(),
                                times.head_forward(),
                                times.head_backward(),
                                times.forward_encode(),
                                times.forward_decode(),
                                times.backward_encode(),
                                times.backward_decode(),
                                times.optimizer_seconds_per_parameter(),
                                times.seconds_taken(),
                                times.seconds_waited()};
  for (const v1::CodecTimes& codec : times.codecs()) {
    values.insert(values.end(), {codec.encode(), codec.decode()});
  }
  for (const v1::GroupTimes& group : times.groups()) {
    for (const v1::GroupPass* pass :
         {&group.embedding(), &group.block(), &group.head(), &group.ends()}) {
      values.insert(values.end(), {pass->forward(), pass->backward(), pass->collective_seconds()});
    }
    values.push_back(group.optimizer_seconds_per_parameter());
  }
  for (const double value : values) {
    if (!std::isfinite(value) || value < 0 || value > 3600) return false;
  }
  return true;
}

std::string MeasuredModel(const RunSpec& spec) {
  return fmt::format("{}, hidden {}, context {}, microbatches of {}, {}",
                     ToString(spec.model.family), spec.model.hidden, spec.model.context,
                     spec.train.microbatch_size, ToString(spec.train.dtype));
}

bool HaveSameLayerTimes(const RunSpec& timed, const RunSpec& other) {
  RunSpec as_other = timed;
  // Every group that the file left open was timed.
  if (timed.group.is_auto() && !other.group.is_auto()) {
    as_other.group = timed.group.Settled(other.group.tensor, other.group.expert);
  }
  if (timed.replicas.count_auto) as_other.replicas = other.replicas;
  // Whole microbatches were timed, and the plan divides their times.
  if (!timed.pipeline.slices) as_other.pipeline.slices = other.pipeline.slices;
  return config::OnlyWhatAffects(config::kTiming, as_other) ==
         config::OnlyWhatAffects(config::kTiming, other);
}

}  // namespace longhaul::coordinator
