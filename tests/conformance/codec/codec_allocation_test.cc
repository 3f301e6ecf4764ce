// Encode and Decode do not touch the heap. A program of its own: it replaces operator new.
#include <atomic>
#include <cstdlib>
#include <new>

#include "python_too.h"

// The operators below are a matching set; the compiler sees them apart once they are inlined.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace {
std::atomic<int64_t> g_allocations{0};
}  // namespace

void* operator new(size_t size) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* pointer = std::malloc(size == 0 ? 1 : size)) return pointer;
  throw std::bad_alloc();
}
void* operator new(size_t size, std::align_val_t alignment) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  const auto align = static_cast<size_t>(alignment);
  if (void* pointer = std::aligned_alloc(align, (size + align - 1) / align * align)) return pointer;
  throw std::bad_alloc();
}
void operator delete(void* pointer) noexcept {
  std::free(pointer);
}
void operator delete(void* pointer, size_t /*size*/) noexcept {
  std::free(pointer);
}
void operator delete(void* pointer, std::align_val_t /*alignment*/) noexcept {
  std::free(pointer);
}
void operator delete(void* pointer, size_t /*size*/, std::align_val_t /*alignment*/) noexcept {
  std::free(pointer);
}

namespace longhaul::codec {
namespace {

class CodecAllocation : public ::testing::TestWithParam<std::string> {};

TEST_P(CodecAllocation, HotPathAllocatesNothing) {
  const auto codec = MustMakeReady(GetParam());
  const Shape shape{2, 16, 200};
  const Tensor in(Dtype::kBf16, shape, Activations(shape.elements(), 2));
  Tensor out(Dtype::kBf16, shape);
  std::vector<std::byte> blob(codec->MaxEncodedBytes(shape));
  const AlignedBytes workspace(codec->WorkspaceBytes(shape));
  EncodeResult result;
  const int64_t before = g_allocations.load();
  const Status encoded = codec->Encode(in.view(), {}, workspace.span(), blob, &result);
  const Status decoded =
      codec->Decode(std::span(blob).first(result.bytes), {}, workspace.span(), out.mutable_view());
  const int64_t after = g_allocations.load();
  EXPECT_TRUE(encoded.ok() && decoded.ok());
  EXPECT_EQ(after, before);
  EXPECT_GT(before, 0);  // the counter counts
}

INSTANTIATE_TEST_SUITE_P(All, CodecAllocation, ::testing::ValuesIn(AllCodecsAndPython()), TestName);

}  // namespace
}  // namespace longhaul::codec
