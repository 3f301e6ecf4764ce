// The compressed communicators that the suite knows, over whatever is below them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/cuda/device.h"
#include "transport/collective/communicator.h"
#include "transport/collective/taco/factory.h"
#include "transport/collective/zip/factory.h"

namespace longhaul::collective {

struct Compression {
  std::string name;
  // As Backend has them.
  double sum_error = 0, copy_error = 0;
  // `device`: null for host memory. `call_limit`: as RankSettings has it.
  std::function<StatusOr<std::unique_ptr<Communicator>>(
      std::shared_ptr<Communicator> below, const cuda::Device* device, absl::Duration call_limit)>
      create;
};

inline Compression Zip(std::string name, const zip::Options& options) {
  return {.name = std::move(name),
          .create = [options](std::shared_ptr<Communicator> below, const cuda::Device* device,
                              absl::Duration call_limit) {
            zip::Options with_limit = options;
            with_limit.call_limit = call_limit;
            return zip::Create(std::move(below), device, with_limit);
          }};
}
// `error`: of a block's largest number, what a code loses of it at most.
inline Compression Taco(std::string name, const taco::Options& options, double error) {
  return {.name = std::move(name),
          .sum_error = error,
          .copy_error = error,
          .create = [options](std::shared_ptr<Communicator> below, const cuda::Device* device,
                              absl::Duration call_limit) {
            taco::Options with_limit = options;
            with_limit.call_limit = call_limit;
            return taco::Create(std::move(below), device, with_limit);
          }};
}

// `pieces`: also those that cut tensors into pieces, which they do on devices alone, and the other
// formats of taco, which taco_formats_test has in host memory.
inline std::vector<Compression> Compressions(bool pieces) {
  // The suite's numbers have exponents that zip's windows do not hold, so a bounded exchange needs
  // room for every escape.
  std::vector<Compression> all = {
      Zip("zip_static_first", {}), Zip("zip_no_room", {.escape_share = 0}),
      Zip("zip_sizes_first", {.exchange = zip::Exchange::kSizesFirst}),
      Zip("zip_bounded", {.exchange = zip::Exchange::kBounded, .escape_share = 1}),
      Taco("taco", {}, 0.2)};
  if (pieces) {
    all.push_back(Zip("zip_in_pieces", {.piece_elements = 5000}));
    all.push_back(Taco("taco_in_pieces", {.piece_elements = 5000}, 0.2));
    all.push_back(Taco("taco_int8_64", {.format = taco::Format::kInt8, .block = 64}, 0.2));
    all.push_back(Taco("taco_e5m2", {.format = taco::Format::kE5m2}, 0.4));
  }
  return all;
}

}  // namespace longhaul::collective
