// On a device table whose streams do nothing before somebody asks for their events: what is read
// too early, or overwritten, is seen.
#include "worker/stage/device/host_copies.h"

#include <gmock/gmock.h>

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

namespace longhaul::worker {
namespace {

struct FakeStream {
  struct Copy {
    void* to;
    const void* from;
    size_t bytes;
  };
  std::deque<Copy> queued;
  size_t begun = 0, done = 0;  // copies
};
struct FakeEvent {
  FakeStream* stream = nullptr;
  size_t copies = 0;  // that were begun when it was recorded
};
std::atomic<int> streams_used{0}, copies_left{0};  // copies_left: until one fails

template <class T>
int Make(void** made) {
  *made = new T();
  return 0;
}
template <class T>
int Destroy(void* made) {
  delete static_cast<T*>(made);
  return 0;
}

const cuda::DeviceTable kTable = {
    .version = cuda::kTableVersion,
    .runtime_version = 13000,
    .error_text = [](int) { return "an illegal memory access was encountered"; },
    .driver_version = [](int* version) { return *version = 13000, 0; },
    .device_count = [](int* count) { return *count = 1, 0; },
    .describe =
        [](int, cuda::DeviceInfo* info) {
          *info = {"Test GPU", 9, 0, 132, 80'000'000'000};
          return 0;
        },
    .stream_create = [](int, void** stream) { return Make<FakeStream>(stream); },
    .stream_destroy = Destroy<FakeStream>,
    .event_create = [](int, bool, void** event) { return Make<FakeEvent>(event); },
    .event_destroy = Destroy<FakeEvent>,
    .event_record =
        [](void* event, void* stream) {
          auto* const of = static_cast<FakeStream*>(stream);
          *static_cast<FakeEvent*>(event) = {of, of->begun};
          return 0;
        },
    .event_query =
        [](void* event, bool* done) {
          const auto* const asked = static_cast<FakeEvent*>(event);
          FakeStream& stream = *asked->stream;
          for (; stream.done < asked->copies; ++stream.done) {
            const FakeStream::Copy copy = stream.queued.front();
            stream.queued.pop_front();
            std::memcpy(copy.to, copy.from, copy.bytes);
          }
          return *done = true, 0;
        },
    .allocate_pinned = [](int, size_t bytes,
                          void** memory) { return *memory = std::malloc(bytes), 0; },
    .free_pinned =
        [](void* memory) {
          std::free(memory);
          return 0;
        },
    .copy =
        [](void* to, const void* from, size_t bytes, void* stream) {
          if (copies_left.fetch_sub(1) <= 0) return 700;
          auto* const on = static_cast<FakeStream*>(stream);
          if (on->begun++ == 0) streams_used.fetch_add(1);
          on->queued.push_back({to, from, bytes});
          return 0;
        },
};

// An array in each type, "on the device" and as the host should get it.
struct Array {
  Array(size_t count, uint32_t seed) : wanted(count), halves(count) {
    for (size_t i = 0; i < count; ++i) {
      const auto bits = static_cast<uint32_t>(i * 2654435761u + seed * 40503u) & 0x3fff0000u;
      wanted[i] = std::bit_cast<float>(bits);
      halves[i] = static_cast<uint16_t>(bits >> 16);
    }
  }
  std::vector<float> wanted;
  std::vector<uint16_t> halves;
  std::vector<float> got = {-1};
};

class HostCopiesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    streams_used = 0;
    copies_left = 1 << 20;
    auto device = cuda::Device::Open(&kTable, 0);
    ASSERT_TRUE(device.ok()) << device.status();
    auto made = HostCopies::Create(*device);
    ASSERT_TRUE(made.ok()) << made.status();
    copies_ = *std::move(made);
  }
  static std::vector<HostCopies::Copy> CopiesOf(std::vector<Array>* arrays, bool bf16) {
    std::vector<HostCopies::Copy> copies;
    for (Array& array : *arrays) {
      const void* const data = bf16 ? static_cast<const void*>(array.halves.data())
                                    : static_cast<const void*>(array.wanted.data());
      copies.push_back({data, array.wanted.size(), bf16, &array.got});
    }
    return copies;
  }

  std::unique_ptr<HostCopies> copies_;
};

TEST_F(HostCopiesTest, TakesArraysOfAnySize) {
  constexpr size_t kBuffer = HostCopies::kPinnedBytes / 8 / sizeof(float);
  for (const bool bf16 : {false, true}) {
    const size_t buffer = bf16 ? 2 * kBuffer : kBuffer;
    std::vector<Array> arrays;
    for (const size_t count : {size_t{0}, size_t{1}, size_t{4097}, buffer - 1, buffer, buffer + 1,
                               2 * buffer, 3 * buffer + 7, size_t{4096}}) {
      arrays.emplace_back(count, static_cast<uint32_t>(arrays.size()));
    }
    for (int again = 0; again < 2; ++again) {
      const Status status = copies_->Run(CopiesOf(&arrays, bf16));
      ASSERT_TRUE(status.ok()) << status;
      for (Array& array : arrays) {
        EXPECT_TRUE(array.got == array.wanted) << array.wanted.size() << " bf16 " << bf16;
        array.got.assign(3, -1);
      }
    }
  }
}

TEST_F(HostCopiesTest, NothingIsNothing) {
  EXPECT_EQ(copies_->Run({}), absl::OkStatus());
  EXPECT_EQ(streams_used, 0);
}

TEST_F(HostCopiesTest, SaysWhatTheDeviceRefuses) {
  std::vector<Array> arrays;
  for (uint32_t k = 0; k < 20; ++k) arrays.emplace_back(100, k);
  copies_left = 10;
  const Status status = copies_->Run(CopiesOf(&arrays, /*bf16=*/false));
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(Message(status)),
              ::testing::HasSubstr("an illegal memory access was encountered"));
}

}  // namespace
}  // namespace longhaul::worker
