// The list of a published model's weights: the tensors of a Hugging Face folder, their positions,
// and the hashes of their bytes. The list of a run that begins with adapters of LoRA has their
// tensors, too. A worker that has the folder reads the tensors of its stage there;
// others fetch them by content address.
//
// A model at an address (remote/remote_folder.h) is not read whole to make its list, so its tensors
// have no hashes. The list has the address, and size and ETag of each file with tensors. Every
// worker reads the tensors of its stage there.
//
// Pure, except ReadFolder, HashTensors and ReadTensor, which read files. Thread-safe.
#pragma once

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
#include "run/published/folder.h"

namespace longhaul::published {

struct Tensor {
  std::string name;  // as published
  std::string type;  // "F32", "BF16", "F16"
  std::vector<int64_t> shape;
  std::string file;                // in the folder
  uint64_t offset = 0, bytes = 0;  // in that file
  std::string sha256;              // hash of the bytes, in lower-case hex; empty: unknown
  friend bool operator==(const Tensor&, const Tensor&) = default;
};

// A small file of the model's tokenizer.
struct SmallFile {
  std::string name, contents;
  friend bool operator==(const SmallFile&, const SmallFile&) = default;
};

struct Weights {
  std::string config_json;
  std::vector<Tensor> tensors;   // by file and offset
  std::vector<SmallFile> files;  // by name
  // The address of the folder, and the files with tensors there, by name. Empty: the model was in a
  // folder of a machine. Adapters never are in these files.
  std::string from = {};
  std::vector<FileVersion> versions = {};

  // Null: there is no tensor of this name. Points into `tensors`.
  const Tensor* Find(std::string_view name) const;
  // Whether the tensor is at the address `from`.
  bool IsRemote(const Tensor& tensor) const;
  friend bool operator==(const Weights&, const Weights&) = default;
};

// True if the tensor is an adapter of LoRA, by its name. Its file is in the adapters' folder
// (adapters.h), and not in the model's.
bool IsOfAdapter(const Tensor& tensor);

// Reads config.json (longhaul.json, if there is none: own_folder.h), the index, the tensor files'
// headers and the tokenizer's files; no tensors, so the hashes stay empty. kInvalidArgument names
// all unreadable tensor files. If all are readable, it names all tensors that are missing, that the
// model does not use, or whose shape or type is wrong. If config.json, the index or a tokenizer's
// file cannot be read, returns the error of ReadFile. Errors for which a server or the network is
// to blame are returned alone.
StatusOr<Weights> ReadFolder(ModelFolder& folder);
StatusOr<Weights> ReadFolder(const std::string& folder);

// Reads the files of a tokenizer that are in `folder`; those of ReadFolder. No files: there is
// none. Errors: those of ReadFile.
StatusOr<std::vector<SmallFile>> ReadTokenizer(const std::string& folder);

// Appends the tensors of the safetensors file `file` of `folder` to `weights`, without hashes.
// kInvalidArgument: the file is damaged.
Status ListTensors(const std::string& folder, const std::string& file, Weights* weights);

// Sets the hash of every tensor; reads all tensor files for this. `progress` (may be empty) is
// called on this thread with the total bytes read so far. If it returns an error, HashTensors stops
// and returns the error. kDataLoss: a tensor cannot be read.
Status HashTensors(const std::string& folder, Weights* weights,
                   const std::function<Status(uint64_t)>& progress);

// Reads a tensor's bytes from a folder. kNotFound: the file is missing. kDataLoss: the file is too
// short, or the hash differs; an empty `sha256` is not checked.
StatusOr<std::vector<std::byte>> ReadTensor(const std::string& folder, const Tensor& tensor);

// Checks that a list with the address `of_list`, "" for one of a folder, is of the model that a run
// file names as `from`, a folder or an address. kInvalidArgument: of another one.
Status CheckPlace(const std::string& of_list, const std::string& from);

// Equal weights have equal JSON. FromJson returns kInvalidArgument if `json` does not have ToJson's
// form, or if a tensor has neither a hash nor a file in `versions` that holds its bytes.
std::string ToJson(const Weights& weights);
StatusOr<Weights> FromJson(std::string_view json);

// Returns the tensor with a parameter's values; never null, points into `weights`. For the head of
// a tied model, which has no tensor of its own, returns the embedding's tensor. kInvalidArgument:
// there is no such tensor, or its shape or type is wrong.
StatusOr<const Tensor*> TensorOf(const Weights& weights, const ModelSpec& model,
                                 const model::PlacedParameter& parameter);

// Converts a tensor's bytes to the fp32 values of a parameter, parameter.shape.elements() of them,
// row by row. `tensor` must be the one that TensorOf returns for the parameter.
void Decode(const Tensor& tensor, std::span<const std::byte> bytes,
            const model::Parameter& parameter, std::span<float> values);

// The reverse of Decode: returns the bytes of a published tensor. `values` has all elements of the
// parameter, row by row.
std::vector<std::byte> Encode(std::span<const float> values, const model::Parameter& parameter,
                              ExportType type);
// The parameter's shape as published.
std::vector<int64_t> PublishedShape(const model::Parameter& parameter);

}  // namespace longhaul::published
