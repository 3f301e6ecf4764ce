#include "worker/stage/replicas/torch_arithmetic.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>
#include <utility>
#include <vector>

#include "codec/cuda/cuda_tagc.h"
#include "codec/sdp4bit/format.h"
#include "codec/tagc/select.h"
#include "transport/replicas/dense.h"
#include "worker/stage/device/torch_device.h"
#include "worker/stage/device/torch_scope.h"
#include "worker/stage/replicas/sdp4bit_tensors.h"

namespace longhaul::worker {
namespace {

using replicas::GradientForm;
using replicas::Numbers;
using replicas::OwnPiece;
using replicas::ParameterForm;
using replicas::ParameterMemory;
using replicas::Part;
using replicas::Piece;
using replicas::Residuals;
namespace sdp4bit = codec::sdp4bit;
namespace tagc = codec::tagc;

// Numbers of which squares are summed at once: these are made doubles.
constexpr int64_t kSumBlock = int64_t{1} << 22;

int64_t Size(uint64_t count) {
  return static_cast<int64_t>(count);
}

// Memory of the host, for a copy.
template <class Number>
at::Tensor InHost(std::span<Number> numbers, at::ScalarType type) {
  // LibTorch knows no memory that must not be written.
  auto* const data = const_cast<std::remove_const_t<Number>*>(numbers.data());
  return at::from_blob(data, {Size(numbers.size())}, at::TensorOptions(type));
}

class TorchArithmetic final : public replicas::Arithmetic {
 public:
  TorchArithmetic(const c10::Device& device, std::optional<cuda::Device> gpu, uint32_t threads)
      : device_(device), gpu_(gpu), threads_(threads), sdp4bit_(std::move(gpu)) {}

  StatusOr<Numbers> Make(uint64_t count) override {
    return Do([&]() -> StatusOr<Numbers> {
      auto tensor = std::make_shared<at::Tensor>(at::zeros({Size(count)}, Options(at::kFloat)));
      return Numbers{{tensor->data_ptr<float>(), count}, tensor};
    });
  }
  Status Read(std::span<const float> numbers, std::span<float> in_host) override {
    return Do([&] { InHost(in_host, at::kFloat).copy_(Over(numbers)); });
  }
  Status Write(std::span<const float> in_host, std::span<float> numbers) override {
    return Do([&] { Over(numbers).copy_(InHost(in_host, at::kFloat)); });
  }
  Status Copy(std::span<const float> from, std::span<float> to) override {
    return Do([&] { Over(to).copy_(Over(from)); });
  }
  Status Fill(float value, std::span<float> numbers) override {
    return Do([&] { Over(numbers).fill_(value); });
  }
  StatusOr<double> SumOfSquares(std::span<const std::span<const float>> numbers) override {
    return Do([&]() -> StatusOr<double> {
      std::vector<at::Tensor> squares;
      for (const std::span<const float> some : numbers) {
        for (const at::Tensor& part : Over(some).split(kSumBlock)) {
          squares.push_back(
              at::linalg_vector_norm(part, 2, at::OptionalIntArrayRef(), false, at::kDouble)
                  .square());
        }
      }
      if (squares.empty()) return 0.0;
      return at::stack(squares).sum().item<double>();
    });
  }

  Status EncodeGradients(GradientForm form, std::span<const Piece> pieces,
                         std::span<const ParameterMemory> memory, const codec::RoundingNoise& noise,
                         const Residuals& residuals, std::span<std::byte> out) override {
    return Do([&] {
      const at::Tensor payload = Bytes(out.size());
      int64_t offset = 0;
      for (const Piece& piece : pieces) {
        const at::Tensor section = payload.narrow(0, offset, Size(GradientBytes(form, piece)));
        offset += section.numel();
        at::Tensor wanted = Over(Part(memory[piece.parameter].gradient, piece));
        at::Tensor residual;
        if (const auto of_parameter = residuals[piece.parameter].span; !of_parameter.empty()) {
          residual = Over(Part(of_parameter, piece));
          wanted = wanted.add(residual);
        }
        Encode(form, piece, ToSummands(form, wanted), noise, section);
        if (!residual.defined()) continue;
        const at::Tensor sent = Decode(form, piece, section);
        if (form == GradientForm::kSdp4bit) sdp4bit_.Transform(sent, /*back=*/true);
        const at::Tensor lost = wanted.sub(sent.narrow(0, 0, wanted.numel()));
        residual.copy_(at::where(at::isfinite(lost), lost, 0));
      }
      Download(payload, out);
    });
  }
  Status ReduceGradients(GradientForm form, std::span<const OwnPiece> own,
                         std::span<const ParameterMemory> memory,
                         std::span<const std::span<const std::byte>> payloads) override {
    return Do([&] {
      std::vector<at::Tensor> uploaded(payloads.size());
      for (size_t replica = 0; replica < payloads.size(); ++replica) {
        if (!payloads[replica].empty()) uploaded[replica] = Upload(payloads[replica]);
      }
      int64_t offset = 0;
      for (const OwnPiece& to : own) {
        const Piece& piece = to.piece;
        const int64_t bytes = Size(GradientBytes(form, piece));
        std::vector<at::Tensor> parts;
        size_t own_part = 0;
        for (const at::Tensor& payload : uploaded) {
          if (!payload.defined()) own_part = parts.size();
          parts.push_back(payload.defined() ? payload.narrow(0, offset, bytes)
                                            : Over(Part(memory[piece.parameter].gradient, piece)));
        }
        if (form == GradientForm::kSdp4bit) {
          sdp4bit_.Mean(parts, own_part, Over(to.gradient));
        } else {
          at::Tensor sum;
          for (size_t k = 0; k < parts.size(); ++k) {
            const at::Tensor part = k == own_part ? parts[k] : Decode(form, piece, parts[k]);
            if (k > 0) {
              sum.add_(part);
            } else {
              sum = k == own_part ? part.clone() : part;
            }
          }
          Over(to.gradient).copy_(Quotient(sum, static_cast<float>(parts.size())));
        }
        offset += bytes;
      }
    });
  }
  Status EncodeParameters(ParameterForm form, std::span<const OwnPiece> own,
                          std::span<const ParameterMemory> memory,
                          std::span<std::byte> out) override {
    return Do([&] {
      const at::Tensor payload = Bytes(out.size());
      int64_t offset = 0;
      for (const OwnPiece& from : own) {
        const Piece& piece = from.piece;
        const at::Tensor section = payload.narrow(0, offset, Size(ParameterBytes(form, piece)));
        offset += section.numel();
        const at::Tensor master = Over(from.master);
        const at::Tensor values = Over(Part(memory[piece.parameter].value, piece));
        if (form == ParameterForm::kFp32) {
          section.view(at::kFloat).copy_(master);
        } else if (form == ParameterForm::kBf16) {
          section.view(at::kBFloat16).copy_(master);
        } else {
          // Rounds to nearest: the error stays in the next step's difference, which sends it again.
          sdp4bit_.Encode(master.sub(values), sdp4bit::kDifferenceGroup, nullptr, 0, section);
        }
        DecodeValues(form, section, values);
      }
      Download(payload, out);
    });
  }
  Status DecodeParameters(ParameterForm form, std::span<const Piece> pieces,
                          std::span<const std::byte> payload,
                          std::span<const ParameterMemory> memory) override {
    return Do([&] {
      const at::Tensor uploaded = Upload(payload);
      int64_t offset = 0;
      for (const Piece& piece : pieces) {
        const int64_t bytes = Size(ParameterBytes(form, piece));
        DecodeValues(form, uploaded.narrow(0, offset, bytes),
                     Over(Part(memory[piece.parameter].value, piece)));
        offset += bytes;
      }
    });
  }

  StatusOr<bool> AllFinite(std::span<const float> numbers) override {
    return Do([&]() -> StatusOr<bool> { return at::isfinite(Over(numbers)).all().item<bool>(); });
  }
  Status AddAndSelect(std::span<const float> gradient, std::span<float> residual, uint64_t keep,
                      std::span<uint64_t> bitmap) override {
    return Do([&] {
      const at::Tensor sums = Over(residual), added = Over(gradient);
      const at::Tensor both = sums.add(added);
      sums.copy_(at::where(at::isfinite(both), both, added));
      if (!gpu_) {
        tagc::Select(residual, keep, bitmap);
        return;
      }
      const at::Tensor words = at::empty({Size(bitmap.size())}, Options(at::kLong));
      const size_t scratch_bytes = codec::cuda::TagcSelectScratchBytes(residual.size());
      const at::Tensor scratch = Bytes(scratch_bytes);
      const c10::impl::VirtualGuardImpl guard(device_.type());
      ThrowIfError(codec::cuda::TagcSelect(
          residual.data(), residual.size(), keep,
          reinterpret_cast<uint64_t*>(words.data_ptr<int64_t>()),
          {scratch.data_ptr<uint8_t>(), scratch_bytes},
          cuda::Stream::Borrow(*gpu_, guard.getStream(device_).native_handle())));
      at::from_blob(bitmap.data(), words.sizes(), at::TensorOptions(at::kLong)).copy_(words);
    });
  }
  StatusOr<std::vector<float>> Get(std::span<const uint64_t> bitmap,
                                   std::span<const float> numbers) override {
    return Do([&]() -> StatusOr<std::vector<float>> {
      std::vector<float> values(tagc::Count(bitmap));
      InHost(std::span(values), at::kFloat).copy_(Over(numbers).index_select(0, Positions(bitmap)));
      return values;
    });
  }
  Status Put(std::span<const uint64_t> bitmap, std::span<const float> values,
             std::span<float> numbers) override {
    return Do([&] {
      const at::Tensor uploaded = InHost(values, at::kFloat).to(device_);
      Over(numbers).index_copy_(0, Positions(bitmap), uploaded);
    });
  }
  Status Divide(std::span<const float> numbers, float divisor, std::span<float> out) override {
    return Do([&] { Over(out).copy_(Quotient(Over(numbers), divisor)); });
  }

 private:
  // The type is written out, because functions above use Do before the compiler could deduce it.
  template <class Body>
  auto Do(const Body& body) const -> decltype(CallTorch("", 0, body)) {
    const at::NoGradGuard no_grad;
    return CallTorch("the exchange with replicas", threads_, body);
  }

  at::TensorOptions Options(at::ScalarType type) const {
    return at::TensorOptions(type).device(device_);
  }
  at::Tensor Over(std::span<const float> numbers) const {
    return at::from_blob(const_cast<float*>(numbers.data()), {Size(numbers.size())},
                         Options(at::kFloat));
  }
  at::Tensor Bytes(uint64_t count) const { return at::empty({Size(count)}, Options(at::kByte)); }
  at::Tensor Upload(std::span<const std::byte> bytes) const {
    return InHost(bytes, at::kByte).to(device_);
  }
  static void Download(const at::Tensor& bytes, std::span<std::byte> out) {
    InHost(out, at::kByte).copy_(bytes);
  }
  // By a number of the device: LibTorch would multiply by the inverse of one of the host's.
  at::Tensor Quotient(const at::Tensor& numbers, float divisor) const {
    return at::div(numbers, at::full({}, divisor, Options(at::kFloat)));
  }
  at::Tensor Positions(std::span<const uint64_t> bitmap) const {
    std::vector<int64_t> positions;
    positions.reserve(tagc::Count(bitmap));
    tagc::ForEach(bitmap, [&](uint64_t k) { positions.push_back(Size(k)); });
    return InHost(std::span(positions), at::kLong)
        .to(Options(at::kLong), /*non_blocking=*/false, /*copy=*/true);
  }

  // In which contributions are summed; new memory.
  at::Tensor ToSummands(GradientForm form, const at::Tensor& gradients) const {
    if (form != GradientForm::kSdp4bit) return gradients.clone();
    const auto count = static_cast<uint64_t>(gradients.numel());
    at::Tensor summands = at::zeros({Size(sdp4bit::Transformed(count))}, Options(at::kFloat));
    summands.narrow(0, 0, gradients.numel()).copy_(gradients);
    sdp4bit_.Transform(summands, /*back=*/false);
    return summands;
  }
  void Encode(GradientForm form, const Piece& piece, const at::Tensor& summands,
              const codec::RoundingNoise& noise, const at::Tensor& section) const {
    switch (form) {
      case GradientForm::kFp32:
        section.view(at::kFloat).copy_(summands);
        return;
      case GradientForm::kSdp4bit:
        return sdp4bit_.Encode(summands, sdp4bit::kGradientGroup, &noise, piece.at, section);
      default:
        section.view(at::kBFloat16).copy_(summands);
    }
  }
  at::Tensor Decode(GradientForm form, const Piece& piece, const at::Tensor& section) const {
    switch (form) {
      case GradientForm::kFp32:
        return section.view(at::kFloat).clone();
      case GradientForm::kSdp4bit: {
        at::Tensor summands = at::empty({Size(SummandsOf(form, piece.count))}, Options(at::kFloat));
        sdp4bit_.Decode(section, sdp4bit::kGradientGroup, summands);
        return summands;
      }
      default:
        return section.view(at::kBFloat16).to(at::kFloat);
    }
  }
  void DecodeValues(ParameterForm form, const at::Tensor& section, const at::Tensor& values) const {
    switch (form) {
      case ParameterForm::kFp32:
        values.copy_(section.view(at::kFloat));
        return;
      case ParameterForm::kBf16:
        values.copy_(section.view(at::kBFloat16));
        return;
      default: {
        const at::Tensor difference = at::empty(values.sizes(), Options(at::kFloat));
        sdp4bit_.Decode(section, sdp4bit::kDifferenceGroup, difference);
        values.add_(difference);
      }
    }
  }

  const c10::Device device_;
  const std::optional<cuda::Device> gpu_;
  const uint32_t threads_;
  const Sdp4bitTensors sdp4bit_;
};

}  // namespace

StatusOr<std::unique_ptr<replicas::Arithmetic>> MakeTorchArithmetic(const DeviceName& device,
                                                                    uint32_t threads) {
  std::optional<cuda::Device> gpu;
  if (device.cuda_index) {
    LH_ASSIGN_OR_RETURN(gpu, cuda::Device::Open(*device.cuda_index));
  }
  return std::make_unique<TorchArithmetic>(TorchDevice(device), std::move(gpu), threads);
}

}  // namespace longhaul::worker
