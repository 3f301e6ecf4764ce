#include "base/cuda/device_check.h"

#include <atomic>
#include <memory>

#include "base/cuda/memory.h"
#include "base/cuda/pattern.h"
#include "base/cuda/stream.h"

namespace longhaul::cuda {
namespace {

constexpr uint64_t kWords = uint64_t{4} << 20;
constexpr size_t kBytes = kWords * sizeof(uint32_t);
constexpr uint32_t kInputSeed = 0x6c6f6e67;
constexpr uint32_t kKernelSeed = 0x6861756c;

struct Resources {
  PinnedBuffer host;
  DeviceBuffer words;
  Stream copies;
  Stream kernels;
  Event copied_in;
  Event computed;
  Event copied_out;
};

StatusOr<std::unique_ptr<Resources>> MakeResources(const Device& device) {
  LH_ASSIGN_OR_RETURN(PinnedBuffer host, PinnedBuffer::Create(device, kBytes));
  LH_ASSIGN_OR_RETURN(DeviceBuffer words, DeviceBuffer::Create(device, kBytes));
  LH_ASSIGN_OR_RETURN(Stream copies, Stream::Create(device));
  LH_ASSIGN_OR_RETURN(Stream kernels, Stream::Create(device));
  LH_ASSIGN_OR_RETURN(Event copied_in, Event::Create(device));
  LH_ASSIGN_OR_RETURN(Event computed, Event::Create(device));
  LH_ASSIGN_OR_RETURN(Event copied_out, Event::Create(device));
  return std::make_unique<Resources>(Resources{std::move(host), std::move(words), std::move(copies),
                                               std::move(kernels), std::move(copied_in),
                                               std::move(computed), std::move(copied_out)});
}

Status Queue(const Device& device, Resources* resources) {
  Resources& r = *resources;
  auto* const words_dev = static_cast<uint32_t*>(r.words.data_dev());
  LH_RETURN_IF_ERROR(r.copies.Copy(words_dev, r.host.span().data(), kBytes));
  LH_RETURN_IF_ERROR(r.copied_in.Record(r.copies));
  LH_RETURN_IF_ERROR(r.kernels.WaitFor(r.copied_in));
  LH_RETURN_IF_ERROR(device.Check(
      device.table().scramble(device.index(), words_dev, kWords, kKernelSeed, r.kernels.handle()),
      "launching a kernel"));
  LH_RETURN_IF_ERROR(r.computed.Record(r.kernels));
  LH_RETURN_IF_ERROR(r.copies.WaitFor(r.computed));
  LH_RETURN_IF_ERROR(r.copies.Copy(r.host.span().data(), words_dev, kBytes));
  return r.copied_out.Record(r.copies);
}

}  // namespace

Status CheckDevice(const Device& device, Deadline deadline) {
  LH_ASSIGN_OR_RETURN(std::unique_ptr<Resources> resources, MakeResources(device));
  auto* const words = reinterpret_cast<uint32_t*>(resources->host.span().data());
  for (uint64_t k = 0; k < kWords; ++k) words[k] = Scramble(0, k, kInputSeed);
  Status status = Queue(device, resources.get());
  if (status.ok()) status = resources->copied_out.Await(deadline);
  if (absl::IsDeadlineExceeded(status)) {
    // Freeing memory would wait for the device for ever. Still reachable, for leak checkers.
    static std::atomic<Resources*> abandoned;
    abandoned = resources.release();
  }
  LH_RETURN_IF_ERROR(status);
  for (uint64_t k = 0; k < kWords; ++k) {
    const uint32_t expected = Scramble(Scramble(0, k, kInputSeed), k, kKernelSeed);
    if (words[k] != expected) {
      return DataLoss(
          "{} computes wrong: expected word {} to be {:08x}, got {:08x}; have the "
          "card looked at",
          device.Name(), k, expected, words[k]);
    }
  }
  return absl::OkStatus();
}

}  // namespace longhaul::cuda
