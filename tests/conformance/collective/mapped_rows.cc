// Exchanges through host memory, by GPUs that are threads: more ranks than a machine has GPUs.
#include "base/cuda/stream.h"
#include "tests/conformance/collective/group.h"
#include "tests/support/fake_gpu.h"
#include "transport/collective/mapped/factory.h"

namespace longhaul::collective {
namespace {

class FakeMemory final : public Memory {
 public:
  FakeMemory(const cuda::Device& device, cuda::Stream stream)
      : device_(device), stream_(std::move(stream)), host_(NewHostMemory()) {}

  const cuda::Device& device() const { return device_; }
  StatusOr<void*> Allocate(size_t bytes) override { return host_->Allocate(bytes); }
  Status Upload(std::span<const std::byte> from, void* to) override {
    return host_->Upload(from, to);
  }
  Status Download(const void* from, std::span<std::byte> to) override {
    return host_->Download(from, to);
  }
  Queue queue() override { return {stream_.handle()}; }

 private:
  const cuda::Device device_;
  cuda::Stream stream_;
  std::unique_ptr<Memory> host_;
};

}  // namespace

const std::vector<Backend>& Backends() {
  static const auto* const backends = new std::vector<Backend>{
      {.name = "mapped",
       .max_ranks = 4,
       .names_mismatches = false,
       .names_late_ranks = false,
       .memory = [](uint32_t rank) -> StatusOr<std::unique_ptr<Memory>> {
         LH_ASSIGN_OR_RETURN(const cuda::Device device,
                             cuda::Device::Open(testing::FakeGpuTable(), rank));
         LH_ASSIGN_OR_RETURN(cuda::Stream stream, cuda::Stream::Create(device));
         return std::make_unique<FakeMemory>(device, std::move(stream));
       },
       .create =
           [](std::shared_ptr<Member> member, Memory& memory, const RankSettings&,
              Deadline deadline) {
             return mapped::Create(std::move(member), static_cast<FakeMemory&>(memory).device(),
                                   deadline);
           }},
  };
  return *backends;
}

}  // namespace longhaul::collective
