// The bytes do not depend on the threads that help: on none, on how many, or on the order in which
// they come.
#include <algorithm>
#include <atomic>
#include <random>

#include "codec/parallel.h"
#include "codec/thread_pool.h"
#include "tests/property/codec/random_codecs.h"

namespace longhaul::codec {
namespace {

// One thread that claims to be many, and takes the pieces from the last to the first.
class Backwards final : public Parallel {
 public:
  explicit Backwards(size_t threads) : threads_(threads) {}
  size_t threads() const override { return threads_; }
  void For(size_t count, absl::FunctionRef<void(size_t)> body) override {
    pieces_ += count;
    for (size_t k = count; k > 0; --k) body(k - 1);
  }
  size_t pieces() const { return pieces_; }

 private:
  size_t threads_;
  size_t pieces_ = 0;
};

std::vector<std::byte> DecodeWith(Parallel* parallel, const Codec& codec,
                                  const std::vector<std::byte>& blob, const Tensor& like) {
  Tensor out(Dtype::kF32, like.view().shape);
  const AlignedBytes workspace(codec.WorkspaceBytes(like.view().shape));
  Context context;
  context.parallel = parallel;
  const Status status = codec.Decode(blob, context, workspace.span(), out.mutable_view());
  EXPECT_TRUE(status.ok()) << status;
  const auto* bytes = static_cast<const std::byte*>(out.view().data);
  return {bytes, bytes + out.view().size_bytes()};
}

TEST(Threads, DoNotChangeTheBytes) {
  std::mt19937 generator(7);
  Backwards backwards(5);
  ThreadPool two(2);
  ThreadPool seven(7);
  for (int round = 0; round < 60; ++round) {
    const std::string name = RandomCodec(&generator);
    const auto codec = MustParse(name);
    // Above what one thread does alone, with and without shorter tiles.
    Shape shape{1 + Below(&generator, 2), 150 + Below(&generator, 100),
                1000 + Below(&generator, 3)};
    if (round % 3 == 0) shape.channels = 1024;
    const Tensor in(round % 2 == 0 ? Dtype::kF32 : Dtype::kBf16, shape,
                    RandomContents(shape.elements(), &generator));
    Context context = RandomContext(&generator);
    uint64_t nonfinite = 0;
    const std::vector<std::byte> blob = MustEncode(*codec, in.view(), context, &nonfinite);
    const std::vector<std::byte> decoded = DecodeWith(nullptr, *codec, blob, in);
    for (Parallel* parallel : {static_cast<Parallel*>(&backwards), static_cast<Parallel*>(&two),
                               static_cast<Parallel*>(&seven)}) {
      context.parallel = parallel;
      uint64_t found = 0;
      ASSERT_TRUE(MustEncode(*codec, in.view(), context, &found) == blob) << name;
      ASSERT_EQ(found, nonfinite) << name;
      ASSERT_TRUE(DecodeWith(parallel, *codec, blob, in) == decoded) << name;
    }
  }
  EXPECT_GT(backwards.pieces(), 60u * 3 * 2) << "the tensors were not large enough to be shared";
}

TEST(Threads, RangesCoverEachPlaceOnce) {
  for (const uint64_t count : {1, 15, 16, 17, 1000, 4096, 4097, 100001}) {
    for (const size_t threads : {1, 2, 3, 16, 200}) {
      for (const uint64_t grain : {1, 16, 48}) {
        Backwards parallel(threads);
        std::vector<int> seen(count);
        ForRanges(&parallel, count, grain, 64, [&](uint64_t first, uint64_t end) {
          ASSERT_LT(first, end);
          ASSERT_EQ(first % grain, 0u);
          for (uint64_t k = first; k < end; ++k) ++seen[k];
        });
        ASSERT_EQ(std::count(seen.begin(), seen.end(), 1), static_cast<int64_t>(count));
      }
    }
  }
}

TEST(ThreadPool, CallsEachBodyOnce) {
  ThreadPool pool(4);
  EXPECT_EQ(pool.threads(), 4u);
  for (size_t count = 0; count < 200; ++count) {
    std::vector<std::atomic<int>> seen(count);
    pool.For(count, [&](size_t k) { ++seen[k]; });
    for (const auto& calls : seen) ASSERT_EQ(calls, 1);
  }
}

}  // namespace
}  // namespace longhaul::codec
