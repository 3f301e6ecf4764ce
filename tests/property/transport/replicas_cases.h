// Parameters and gradients that the tests of replicas share.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "tests/support/replica_threads.h"

namespace longhaul::replicas {

// Large, small and odd ones; every third may not be sparse.
inline std::vector<ReplicatedParameter> SomeParameters(std::mt19937* random) {
  std::vector<ReplicatedParameter> parameters;
  for (int k = 0; k < 7; ++k) {
    const uint64_t elements = 1 + (*random)() % (k % 2 == 0 ? 40'000 : 300);
    parameters.push_back({.name = "p" + std::to_string(k),
                          .elements = elements,
                          .may_be_sparse = k % 3 != 2,
                          .whole = k == 4});
  }
  return parameters;
}

// Heavy tails, as gradients have.
inline Tensors SomeTensors(const std::vector<ReplicatedParameter>& parameters,
                           std::mt19937* random) {
  std::normal_distribution<float> normal;
  Tensors tensors;
  for (const ReplicatedParameter& parameter : parameters) {
    std::vector<float>& tensor = tensors.emplace_back(parameter.elements);
    for (float& value : tensor) {
      const float x = normal(*random);
      value = x * x * x * 0.01f;
    }
  }
  return tensors;
}

inline std::vector<Tensors> OfReplicas(const std::vector<ReplicatedParameter>& parameters,
                                       uint32_t replicas, std::mt19937* random) {
  std::vector<Tensors> all;
  for (uint32_t r = 0; r < replicas; ++r) all.push_back(SomeTensors(parameters, random));
  return all;
}

// Where each owner's means go, as whole tensors.
inline ReplicaThreads::Optimizer Collect(Tensors* means) {
  return [means](uint32_t, uint32_t, std::span<const OwnPiece> own) {
    for (const OwnPiece& piece : own) {
      std::copy(
          piece.gradient.begin(), piece.gradient.end(),
          (*means)[piece.piece.parameter].begin() + static_cast<ptrdiff_t>(piece.piece.first));
    }
  };
}

}  // namespace longhaul::replicas
