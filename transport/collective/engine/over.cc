#include "transport/collective/engine/over.h"

namespace longhaul::collective {

StatusOr<std::unique_ptr<Engine>> EngineFor(const Communicator& below, const cuda::Device* device) {
  if ((device == nullptr ? -1 : device->index()) != below.device()) {
    return InvalidArgument("{} does not take memory of {}", below.Describe(),
                           device == nullptr ? "the host" : device->Name());
  }
  if (device == nullptr) return Engine::ForHost();
  return Engine::ForDevice(*device);
}

Status Reserve(Engine& engine, size_t bytes, OwnedMemory* memory) {
  if (memory->size() >= bytes) return absl::OkStatus();
  *memory = {};
  LH_ASSIGN_OR_RETURN(*memory, engine.Allocate(bytes));
  return absl::OkStatus();
}

}  // namespace longhaul::collective
