#include "worker/measuring/stage_options.h"

#include <utility>

namespace longhaul::worker {

std::optional<cuda::Device> GpuOf(const RunSpec& spec, const std::optional<cuda::Device>& gpu) {
  return spec.replay ? std::nullopt : gpu;
}

StageOptions StageOptionsFor(const RunSpec& spec, uint32_t vocabulary, const LayerRange& layers,
                             const Roles& roles, uint32_t threads,
                             const std::optional<cuda::Device>& gpu,
                             std::vector<DeviceName> ranks) {
  DeviceName device;
  // What is measured on one device has no ranks.
  const GroupSpec group = ranks.empty() ? GroupSpec() : spec.group;
  if (gpu) device.cuda_index = static_cast<uint32_t>(gpu->index());
  return {.model = spec.model,
          .train = spec.train,
          .vocabulary = vocabulary,
          .first_layer = layers.first,
          .layers = layers.count,
          .first = roles.embedding,
          .last = roles.head,
          .recompute = spec.pipeline.recompute,
          .threads = threads,
          .device = device,
          .ranks = std::move(ranks),
          .group = group,
          .slices = spec.pipeline.SlicesNow(),
          .masked_targets = spec.data.masks || spec.data.mask_documents,
          .masked_attention = spec.data.mask_documents,
          .loads = !spec.weights.from.empty(),
          .loads_adapters = !spec.weights.adapters.empty(),
          .shares_step = spec.replicas.count > 1 && !spec.replicas.trains_apart(),
          .replay = spec.replay};
}

}  // namespace longhaul::worker
