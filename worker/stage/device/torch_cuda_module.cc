// liblonghaul_torch_cuda.so. It needs LibTorch's CUDA part, so that opening it opens that; and has
// what LibTorch offers in that part alone.
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "worker/stage/device/torch_graph.h"

namespace longhaul::worker {
namespace {

class CudaGraph final : public TorchGraph {
 public:
  at::cuda::CUDAGraph& graph() { return graph_; }
  void Replay() override { graph_.replay(); }

 private:
  at::cuda::CUDAGraph graph_;
};

class CudaGraphRecorder final : public TorchGraphRecorder {
 public:
  explicit CudaGraphRecorder(const c10::Device& device) : stream_(RecordingStream(device)) {}

  Memory NewMemory() override { return at::cuda::graph_pool_handle(); }

  std::unique_ptr<TorchGraph> Record(const Memory& memory,
                                     const std::function<void()>& work) override {
    auto recorded = std::make_unique<CudaGraph>();
    const c10::StreamGuard on_stream(stream_);
    // Other threads, above all the codec's, go on calling CUDA.
    recorded->graph().capture_begin(memory, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      const std::exception_ptr failed = std::current_exception();
      try {
        End(recorded->graph(), memory);
      } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): `failed` says it
      }
      std::rethrow_exception(failed);
    }
    End(recorded->graph(), memory);
    return recorded;
  }

 private:
  void End(at::cuda::CUDAGraph& graph, const Memory& memory) const {
    try {
      graph.capture_end();
    } catch (const std::exception&) {
      LetGo(memory);
      throw;
    }
  }
  // Where a recording has become invalid, by work that waits for the device, capture_end throws
  // before it tells the allocators: they would go on asking a graph that is gone whether an
  // allocation belongs to it. Where it had told them, the first call throws, and nothing is undone
  // twice.
  void LetGo(const Memory& memory) const {
    try {
      c10::cuda::CUDACachingAllocator::endAllocateToPool(stream_.device_index(), memory);
      at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(memory);
      c10::cuda::CUDACachingAllocator::releasePool(stream_.device_index(), memory);
      at::getHostAllocator(at::kCUDA)->release_pool(memory);
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): they had been told
    }
  }
  // One for all that is recorded on a device: cuBLAS keeps a workspace for each stream it has seen.
  static c10::Stream RecordingStream(const c10::Device& device) {
    static std::mutex mutex;  // ranks of a group have threads
    static std::map<c10::DeviceIndex, c10::Stream> streams;
    const std::lock_guard lock(mutex);
    auto it = streams.find(device.index());
    if (it == streams.end()) {
      const c10::impl::VirtualGuardImpl devices(device.type());
      it = streams.emplace(device.index(), devices.getStreamFromGlobalPool(device)).first;
    }
    return it->second;
  }

  const c10::Stream stream_;
};

}  // namespace
}  // namespace longhaul::worker

extern "C" __attribute__((visibility("default"))) longhaul::worker::TorchGraphRecorder*
longhaul_make_torch_graph_recorder(const c10::Device& device) {
  return new longhaul::worker::CudaGraphRecorder(device);
}
