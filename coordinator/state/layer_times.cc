#include "coordinator/state/layer_times.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

namespace longhaul::coordinator {
namespace {

RunSpec WithoutWhatTakesNoTime(RunSpec spec) {
  const RunSpec none;
  spec.name = none.name;
  spec.data.text = none.data.text;
  spec.data.seed = none.data.seed;
  spec.validation = none.validation;
  spec.train.steps = none.train.steps;
  spec.train.microbatches = none.train.microbatches;
  spec.train.seed = none.train.seed;
  spec.train.optimizer.lr = none.train.optimizer.lr;
  spec.train.schedule = none.train.schedule;
  spec.train.on_nonfinite = none.train.on_nonfinite;
  spec.pipeline.stages = none.pipeline.stages;
  spec.pipeline.schedule = none.pipeline.schedule;
  spec.pipeline.send_order = none.pipeline.send_order;
  spec.pipeline.depth = none.pipeline.depth;
  spec.transport = none.transport;
  spec.links.cache_limit_bytes = none.links.cache_limit_bytes;
  spec.links.measure = none.links.measure;
  spec.links.chosen = none.links.chosen;
  spec.checkpoint = none.checkpoint;
  spec.recovery = none.recovery;
  spec.topology = none.topology;
  spec.peer_timeout = none.peer_timeout;
  return spec;
}

}  // namespace

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
  // All that was left open was timed.
  if (timed.group.is_auto() && !other.group.is_auto()) {
    as_other.group = timed.group.Settled(other.group.tensor, other.group.expert);
  }
  if (timed.replicas.count_auto) as_other.replicas = other.replicas;
  // Microbatches whole were, and the plan divides.
  if (!timed.pipeline.slices) as_other.pipeline.slices = other.pipeline.slices;
  return WithoutWhatTakesNoTime(as_other) == WithoutWhatTakesNoTime(other);
}

}  // namespace longhaul::coordinator
