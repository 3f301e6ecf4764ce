// The CPU implementation of the exchange's arithmetic (arithmetic.h).
//
// Encodes and decodes in blocks that fit a core's cache, on all threads of `parallel`. Results do
// not depend on the number of threads.
#pragma once

#include <vector>

#include "codec/parallel.h"
#include "transport/replicas/arithmetic.h"

namespace longhaul::replicas {

class HostArithmetic final : public Arithmetic {
 public:
  // `parallel` must outlive this object. Null: the calling thread does everything.
  explicit HostArithmetic(codec::Parallel* parallel = nullptr) : parallel_(parallel) {}

  StatusOr<Numbers> Make(uint64_t count) override;
  Status Read(std::span<const float> numbers, std::span<float> in_host) override;
  Status Write(std::span<const float> in_host, std::span<float> numbers) override;
  Status Copy(std::span<const float> from, std::span<float> to) override;
  Status Fill(float value, std::span<float> numbers) override;
  StatusOr<double> SumOfSquares(std::span<const std::span<const float>> numbers) override;

  Status EncodeGradients(GradientForm form, std::span<const Piece> pieces,
                         std::span<const ParameterMemory> memory, const codec::RoundingNoise& noise,
                         const Residuals& residuals, std::span<std::byte> out) override;
  Status ReduceGradients(GradientForm form, std::span<const OwnPiece> own,
                         std::span<const ParameterMemory> memory,
                         std::span<const std::span<const std::byte>> payloads) override;
  Status EncodeParameters(ParameterForm form, std::span<const OwnPiece> own,
                          std::span<const ParameterMemory> memory,
                          std::span<std::byte> out) override;
  Status DecodeParameters(ParameterForm form, std::span<const Piece> pieces,
                          std::span<const std::byte> payload,
                          std::span<const ParameterMemory> memory) override;

  StatusOr<bool> AllFinite(std::span<const float> numbers) override;
  Status AddAndSelect(std::span<const float> gradient, std::span<float> residual, uint64_t keep,
                      std::span<uint64_t> bitmap) override;
  StatusOr<std::vector<float>> Get(std::span<const uint64_t> bitmap,
                                   std::span<const float> numbers) override;
  Status Put(std::span<const uint64_t> bitmap, std::span<const float> values,
             std::span<float> numbers) override;
  Status Divide(std::span<const float> numbers, float divisor, std::span<float> out) override;

 private:
  codec::Parallel* const parallel_;
};

}  // namespace longhaul::replicas
