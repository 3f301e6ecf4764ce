#include "no_sums.h"

#include <span>
#include <string>
#include <utility>

#include "base/cuda/device.h"
#include "base/cuda/module.h"

namespace longhaul::worker::testing {
namespace {

using collective::Block;
using collective::BytesPerElement;
using collective::Communicator;
using collective::Dtype;
using collective::Op;
using collective::Queue;
using collective::Reduction;

class Copies final : public Communicator {
 public:
  Copies(std::shared_ptr<Communicator> below, cuda::Device device)
      : below_(std::move(below)), device_(std::move(device)) {}

  uint32_t rank() const override { return below_->rank(); }
  uint32_t size() const override { return below_->size(); }
  int device() const override { return below_->device(); }
  std::string Describe() const override { return "copies of a rank's own part"; }

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
    return below_->AllToAllV(in, send, out, receive, dtype, queue);
  }
  Status Broadcast(void* data, uint64_t count, Dtype dtype, uint32_t root, Queue queue) override {
    return below_->Broadcast(data, count, dtype, root, queue);
  }
  Status Barrier(Queue queue) override { return below_->Barrier(queue); }
  Status Prepare(Op op, uint64_t count, Dtype dtype) override {
    return below_->Prepare(op, count, dtype);
  }
  Status Wait(Queue queue, Deadline deadline) override { return below_->Wait(queue, deadline); }
  void Abort(const Status& reason) override { below_->Abort(reason); }
  Status status() const override { return below_->status(); }
  collective::Stats stats() const override { return below_->stats(); }

 private:
  Status Copy(const void* in, uint64_t from, void* out, uint64_t to, uint64_t count, Dtype dtype,
              Queue queue) const {
    const size_t width = BytesPerElement(dtype);
    return device_.Check(device_.table().copy(static_cast<std::byte*>(out) + to * width,
                                              static_cast<const std::byte*>(in) + from * width,
                                              count * width, queue.stream),
                         "queueing a copy");
  }

  const std::shared_ptr<Communicator> below_;
  const cuda::Device device_;
};

}  // namespace

MakeCommunicators WithoutSums(MakeCommunicators make) {
  return [make = std::move(make)](std::shared_ptr<collective::Member> member,
                                  const DeviceName& name,
                                  Deadline deadline) -> StatusOr<RankCommunicators> {
    LH_ASSIGN_OR_RETURN(RankCommunicators ranks, make(std::move(member), name, deadline));
    LH_ASSIGN_OR_RETURN(const cuda::DeviceTable* const table,
                        cuda::LoadModule(cuda::DefaultModulePath()));
    LH_ASSIGN_OR_RETURN(cuda::Device device, cuda::Device::Open(table, name.cuda_index.value()));
    ranks.forward = ranks.backward = std::make_shared<Copies>(ranks.exact, std::move(device));
    return ranks;
  };
}

}  // namespace longhaul::worker::testing
