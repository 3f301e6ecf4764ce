// The operators as PyTorch's dispatcher calls them, beside the codecs themselves. What Python adds
// (tracing, gradients, shortcuts) is in ops_test.py.
#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "codec/registry.h"

namespace longhaul {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

template <class Function>
auto Operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Function>();
}

at::Tensor Encode(const at::Tensor& x, std::string_view codec, int64_t seed = 0,
                  std::string_view direction = "forward") {
  return Operator<at::Tensor(const at::Tensor&, std::string_view, c10::SymInt, std::string_view)>(
             "longhaul::encode")
      .call(x, codec, seed, direction);
}

at::Tensor Decode(const at::Tensor& blob, const std::vector<int64_t>& shape = {},
                  std::optional<at::ScalarType> dtype = std::nullopt,
                  std::optional<std::string_view> codec = std::nullopt, bool padded = false) {
  const std::vector<c10::SymInt> sizes(shape.begin(), shape.end());
  at::OptionalSymIntArrayRef wanted;
  if (!shape.empty()) wanted = sizes;
  return Operator<at::Tensor(const at::Tensor&, at::OptionalSymIntArrayRef,
                             std::optional<at::ScalarType>, std::optional<std::string_view>, bool)>(
             "longhaul::decode")
      .call(blob, wanted, dtype, codec, padded);
}

at::Tensor Roundtrip(const at::Tensor& x, std::string_view codec, int64_t seed = 0) {
  return Operator<at::Tensor(const at::Tensor&, std::string_view, std::optional<std::string_view>,
                             c10::SymInt, std::string_view)>("longhaul::roundtrip")
      .call(x, codec, std::nullopt, seed, "forward");
}

std::tuple<at::Tensor, at::Tensor> EncodePadded(const at::Tensor& x, std::string_view codec) {
  return Operator<std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, std::string_view,
                                                     c10::SymInt, std::string_view)>(
             "longhaul::encode_padded")
      .call(x, codec, 0, "forward");
}

std::vector<std::string> AllCodecs() {
  std::vector<std::string> codecs;
  for (const std::string_view name : codec::CodecNames()) {
    if (name != "predict" && name != "python") codecs.emplace_back(name);
  }
  codecs.emplace_back("tah:p=0.5,tile=32,rounding=stochastic");
  codecs.emplace_back("fixed:bits=4,rounding=stochastic");
  return codecs;
}

// Sizes that no tile divides.
at::Tensor Tensor(const std::vector<int64_t>& sizes = {2, 3, 200},
                  at::ScalarType type = at::kFloat) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return at::arange(count, at::kFloat).mul(0.7).sin().mul(3).reshape(sizes).to(type);
}

std::vector<uint8_t> BytesOf(const at::Tensor& tensor) {
  const auto* const data = static_cast<const uint8_t*>(tensor.const_data_ptr());
  return {data, data + tensor.nbytes()};
}

// What the codec itself writes.
std::vector<uint8_t> Expected(const at::Tensor& x, const codec::Shape& shape, codec::Dtype dtype,
                              const std::string& text, const codec::Context& context) {
  const auto codec = codec::ParseCodec(text);
  EXPECT_TRUE(codec.ok()) << codec.status();
  std::vector<uint8_t> blob((*codec)->MaxEncodedBytes(shape));
  const at::Tensor workspace =
      at::empty({static_cast<int64_t>((*codec)->WorkspaceBytes(shape))}, at::kByte);
  codec::EncodeResult result;
  const Status status = (*codec)->Encode(
      {x.const_data_ptr(), dtype, shape}, context,
      {static_cast<std::byte*>(workspace.data_ptr()), static_cast<size_t>(workspace.numel())},
      std::as_writable_bytes(std::span(blob)), &result);
  EXPECT_TRUE(status.ok()) << status;
  blob.resize(result.bytes);
  return blob;
}

bool Same(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && BytesOf(a) == BytesOf(b);
}

template <class Error>
void ExpectRefused(const std::function<void()>& call, const std::string& words) {
  try {
    call();
    ADD_FAILURE() << "expected an error: " << words;
  } catch (const Error& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr(words));
  }
}

TEST(TorchOps, WriteWhatTheCodecsWrite) {
  codec::Context context;
  context.seed = 7;
  for (const std::string& text : AllCodecs()) {
    for (const auto& [type, dtype] :
         {std::pair(at::kFloat, codec::Dtype::kF32), std::pair(at::kHalf, codec::Dtype::kF16),
          std::pair(at::kBFloat16, codec::Dtype::kBf16)}) {
      const at::Tensor x = Tensor({2, 3, 200}, type);
      const at::Tensor blob = Encode(x, text, 7);
      EXPECT_THAT(BytesOf(blob), ElementsAreArray(Expected(x, {2, 3, 200}, dtype, text, context)))
          << text;
      const at::Tensor y = Decode(blob);
      EXPECT_EQ(y.scalar_type(), type) << text;
      EXPECT_TRUE(Same(Roundtrip(x, text, 7), y)) << text;
      const auto [buffer, length] = EncodePadded(x, text);
      EXPECT_TRUE(Same(buffer.narrow(0, 0, length.item<int64_t>()), Encode(x, text))) << text;
      EXPECT_TRUE(Same(Decode(buffer, {}, {}, {}, /*padded=*/true), Decode(Encode(x, text))));
    }
  }
}

TEST(TorchOps, ADirectionHasItsOwnNoise) {
  const at::Tensor x = Tensor();
  const std::string text = "fixed:bits=4,rounding=stochastic";
  codec::Context context;
  context.seed = 7;
  context.direction = Direction::kBackward;
  EXPECT_THAT(BytesOf(Encode(x, text, 7, "backward")),
              ElementsAreArray(Expected(x, {2, 3, 200}, codec::Dtype::kF32, text, context)));
  EXPECT_FALSE(Same(Encode(x, text, 7), Encode(x, text, 7, "backward")));
  EXPECT_FALSE(Same(Encode(x, text, 7), Encode(x, text, 8)));
}

TEST(TorchOps, MissingDimensionsAreLeadingOnes) {
  EXPECT_TRUE(Same(Encode(Tensor({600}), "tah"), Encode(Tensor({1, 1, 600}), "tah")));
  EXPECT_TRUE(Same(Encode(Tensor({3, 200}), "tah"), Encode(Tensor({1, 3, 200}), "tah")));
  const at::Tensor blob = Encode(Tensor({3, 200}), "tah");
  EXPECT_EQ(Decode(blob).sizes(), (std::vector<int64_t>{1, 3, 200}));
  EXPECT_TRUE(Same(Decode(blob, {3, 200}), Roundtrip(Tensor({3, 200}), "tah")));
  EXPECT_TRUE(Same(Decode(blob, {3, 200}, at::kBFloat16),
                   Roundtrip(Tensor({3, 200}), "tah").to(at::kBFloat16)));
}

TEST(TorchOps, TakeTensorsWithGapsAndEmptyOnes) {
  const at::Tensor x = Tensor({4, 6, 100}).slice(0, 0, 4, 2).transpose(1, 2);
  for (const std::string& text : AllCodecs()) {
    EXPECT_TRUE(Same(Encode(x, text), Encode(x.contiguous(), text))) << text;
    const at::Tensor none = Tensor({2, 0, 200});
    EXPECT_EQ(Encode(none, text).numel(), 64) << text;
    EXPECT_EQ(Roundtrip(none, text).sizes(), none.sizes()) << text;
  }
  // A blob in the middle of other bytes, at any address.
  const at::Tensor blob = Encode(x, "zip");
  for (int64_t gap = 0; gap < 4; ++gap) {
    const at::Tensor all = at::zeros({gap + blob.numel()}, at::kByte);
    all.narrow(0, gap, blob.numel()).copy_(blob);
    EXPECT_TRUE(Same(Decode(all.narrow(0, gap, blob.numel())), Decode(blob)));
  }
}

TEST(TorchOps, RefuseWrongTensorsAndTexts) {
  const at::Tensor x = Tensor();
  ExpectRefused<c10::TypeError>([&] { Encode(x.to(at::kDouble), "tah"); }, "float32");
  ExpectRefused<c10::ValueError>([&] { Encode(x.unsqueeze(0), "tah"); }, "1 to 3 dimensions");
  ExpectRefused<c10::ValueError>([&] { Encode(x, "tha"); }, "did you mean 'tah'?");
  ExpectRefused<c10::ValueError>([&] { Encode(x, "tah:p=2"); }, "'p' is out of range");
  ExpectRefused<c10::ValueError>([&] { Encode(x, "tah", 0, "up"); }, "'forward' or 'backward'");
  ExpectRefused<c10::TypeError>([&] { Decode(x); }, "a uint8 tensor of one dimension");
}

TEST(TorchOps, RefuseWhatIsNoBlob) {
  const at::Tensor blob = Encode(Tensor(), "tah");
  ExpectRefused<c10::ValueError>([&] { Decode(at::zeros({100}, at::kByte)); }, "'LHBL'");
  ExpectRefused<c10::ValueError>([&] { Decode(at::zeros({10}, at::kByte), {}, {}, {}, true); },
                                 "only 10 bytes came");
  ExpectRefused<c10::ValueError>([&] { Decode(blob.narrow(0, 0, 100)); }, "36 bytes came");
  ExpectRefused<c10::ValueError>([&] { Decode(blob.narrow(0, 0, 100), {}, {}, {}, true); },
                                 "36 bytes came");
  ExpectRefused<c10::ValueError>([&] { Decode(blob, {3, 2, 200}); }, "expected a blob of shape");
  ExpectRefused<c10::ValueError>([&] { Decode(blob, {}, {}, "zip"); }, "expected a blob of zip");
  ExpectRefused<c10::TypeError>([&] { Decode(blob, {}, at::kInt); }, "float32");
  // A newer version; a shape for which the blob is far too small; a payload that no encoder writes.
  at::Tensor wrong = blob.clone();
  wrong[4].fill_(9);
  ExpectRefused<c10::NotImplementedError>([&] { Decode(wrong); }, "version 9");
  wrong = blob.clone();
  wrong.narrow(0, 8, 2).fill_(255);
  ExpectRefused<c10::ValueError>([&] { Decode(wrong); }, "with its shape has");
  wrong = Encode(Tensor({2, 3, 2000}), "zip");
  wrong.narrow(0, 64, 4).fill_(255);
  ExpectRefused<c10::ValueError>([&] { Decode(wrong); }, "escapes");
}

}  // namespace
}  // namespace longhaul
