#include "bench_communicators.h"

#include <span>
#include <utility>

#include "base/cuda/device.h"
#include "base/cuda/module.h"
#include "transport/collective/engine/over.h"
#include "transport/collective/zip/factory.h"

namespace longhaul::worker::testing {
namespace {

using collective::Block;
using collective::BytesPerElement;
using collective::Dtype;
using collective::Op;
using collective::Queue;
using collective::Reduction;

class Copies final : public collective::CommunicatorOver {
 public:
  Copies(std::shared_ptr<collective::Communicator> below, cuda::Device device)
      : CommunicatorOver("copies of a rank's own part", std::move(below), absl::InfiniteDuration()),
        device_(std::move(device)) {}

  Status AllReduce(const void* in, void* out, uint64_t count, Dtype dtype, Reduction,
                   Queue queue) override {
    return Copy(in, 0, out, 0, count, dtype, queue);
  }
  Status ReduceScatter(const void* in, void* out, uint64_t count, Dtype dtype, Reduction,
                       Queue queue) override {
    return Copy(in, rank() * count, out, 0, count, dtype, queue);
  }
  Status AllGather(const void* in, void* out, uint64_t count, Dtype dtype, Queue queue) override {
    for (uint32_t part = 0; part < size(); ++part) {
      LH_RETURN_IF_ERROR(Copy(in, 0, out, part * count, count, dtype, queue));
    }
    return absl::OkStatus();
  }
  // Counts depend on the tokens: this one stays.
  Status AllToAllV(const void* in, std::span<const Block> send, void* out,
                   std::span<const Block> receive, Dtype dtype, Queue queue) override {
    return Pass([&] { return below().AllToAllV(in, send, out, receive, dtype, queue); });
  }
  Status Prepare(Op op, uint64_t count, Dtype dtype) override {
    return below().Prepare(op, count, dtype);
  }

 private:
  Status Copy(const void* in, uint64_t from, void* out, uint64_t to, uint64_t count, Dtype dtype,
              Queue queue) const {
    const size_t width = BytesPerElement(dtype);
    return device_.Check(device_.table().copy(static_cast<std::byte*>(out) + to * width,
                                              static_cast<const std::byte*>(in) + from * width,
                                              count * width, queue.stream),
                         "queueing a copy");
  }

  const cuda::Device device_;
};

StatusOr<cuda::Device> DeviceOf(const DeviceName& name) {
  if (!name.cuda_index) {
    return absl::InvalidArgumentError(
        "these collectives are for GPUs; name devices, such as cuda:0-1");
  }
  LH_ASSIGN_OR_RETURN(const cuda::DeviceTable* const table,
                      cuda::LoadModule(cuda::DefaultModulePath()));
  return cuda::Device::Open(table, *name.cuda_index);
}

}  // namespace

MakeCommunicators WithoutSums(MakeCommunicators make) {
  return
      [make = std::move(make)](std::shared_ptr<collective::Member> member, const DeviceName& name,
                               Deadline deadline) -> StatusOr<RankCommunicators> {
        LH_ASSIGN_OR_RETURN(RankCommunicators ranks, make(std::move(member), name, deadline));
        LH_ASSIGN_OR_RETURN(cuda::Device device, DeviceOf(name));
        ranks.forward = ranks.backward = std::make_shared<Copies>(ranks.exact, std::move(device));
        return ranks;
      };
}

MakeCommunicators WithBoundedZip(MakeCommunicators make) {
  return [make = std::move(make)](std::shared_ptr<collective::Member> member,
                                  const DeviceName& name,
                                  Deadline deadline) -> StatusOr<RankCommunicators> {
    LH_ASSIGN_OR_RETURN(RankCommunicators ranks, make(std::move(member), name, deadline));
    LH_ASSIGN_OR_RETURN(const cuda::Device device, DeviceOf(name));
    LH_ASSIGN_OR_RETURN(ranks.forward,
                        collective::zip::Create(ranks.exact, &device,
                                                {.exchange = collective::zip::Exchange::kBounded}));
    ranks.backward = ranks.forward;
    return ranks;
  };
}

}  // namespace longhaul::worker::testing
