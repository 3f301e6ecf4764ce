// The weights of a published model: which tensors a folder of Hugging Face's has, where each lies,
// and what its bytes hash to. Whoever holds a part of the model takes from this the tensors of that
// part, from the folder where it has it or by their content address.
//
// Pure but for ReadFolder, HashTensors and ReadTensor; thread-safe.
#ifndef LONGHAUL_RUN_PUBLISHED_WEIGHTS_H_
#define LONGHAUL_RUN_PUBLISHED_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "run/model/family.h"
#include "run/published/config.h"

namespace longhaul::published {

struct Tensor {
  std::string name;  // as published
  std::string type;  // "F32", "BF16", "F16"
  std::vector<int64_t> shape;
  std::string file;                // in the folder
  uint64_t offset = 0, bytes = 0;  // in that file
  std::string sha256;              // of the bytes; empty: not known yet
  friend bool operator==(const Tensor&, const Tensor&) = default;
};

// A small file that belongs to the model: of its tokenizer.
struct SmallFile {
  std::string name, contents;
  friend bool operator==(const SmallFile&, const SmallFile&) = default;
};

struct Weights {
  std::string config_json;
  std::vector<Tensor> tensors;   // by file and offset
  std::vector<SmallFile> files;  // by name

  const Tensor* Find(std::string_view name) const;
  friend bool operator==(const Weights&, const Weights&) = default;
};

// Reads config.json, the index and the files' headers, not their tensors. All that is wrong at
// once: files that are missing, tensors that the model lacks, has in another shape or type, or has
// no place for.
StatusOr<Weights> ReadFolder(const std::string& folder);

// Fills in the hash of every tensor; reads all of the files. `progress` gets the bytes that were
// read in all, now and then, and ends it where it is not OK.
Status HashTensors(const std::string& folder, Weights* weights,
                   const std::function<Status(uint64_t)>& progress);

// A tensor's bytes out of a folder. kDataLoss: what lies there has another hash; kNotFound.
StatusOr<std::vector<std::byte>> ReadTensor(const std::string& folder, const Tensor& tensor);

// As a text, which is the same for the same weights. Foreign bytes: kInvalidArgument.
std::string ToJson(const Weights& weights);
StatusOr<Weights> FromJson(std::string_view json);

// The tensor that holds the values of a parameter of `model`. A published model that is tied has
// one for embedding and head; both of a model that has them apart begin with it. kInvalidArgument:
// there is none, or it has another shape or type.
StatusOr<const Tensor*> TensorOf(const Weights& weights, const ModelSpec& model,
                                 const model::PlacedParameter& parameter);

// `bytes` of a tensor as fp32 values of the parameter, which are parameter.shape.elements().
// Both were matched by TensorOf.
void Decode(const Tensor& tensor, std::span<const std::byte> bytes,
            const model::Parameter& parameter, std::span<float> values);

// The other way: the bytes of a published tensor. `values` as Decode gives them.
std::vector<std::byte> Encode(std::span<const float> values, const model::Parameter& parameter,
                              ExportType type);
// Its shape there.
std::vector<int64_t> PublishedShape(const model::Parameter& parameter);

}  // namespace longhaul::published

#endif  // LONGHAUL_RUN_PUBLISHED_WEIGHTS_H_
