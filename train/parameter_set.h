// Lists of tensors: those of well-known models, generated from the rules of their architecture.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace selmcast {

/// Name and dimensions of one tensor of float32.
struct TensorSpec {
  std::string name;
  std::vector<std::uint64_t> shape;

  /// Product of the dimensions; 1 for a scalar. The caller knows that it fits 64 bits.
  std::uint64_t elements() const noexcept;
};

/// The trainable parameters of a model in the order their framework lists them.
struct ParameterSet {
  std::string name;
  std::vector<TensorSpec> tensors;

  std::uint64_t parameters() const noexcept;
  std::uint64_t bytes() const noexcept { return parameters() * 4; }
};

/// He, Zhang, Ren, Sun, "Deep Residual Learning for Image Recognition", CVPR 2016, in the form and
/// with the names of torchvision: 25 557 032 parameters; the running statistics of batch
/// normalisation are not parameters.
ParameterSet resnet50();
/// Simonyan and Zisserman, "Very Deep Convolutional Networks", ICLR 2015, configuration D without
/// batch normalisation, names of torchvision: 138 357 544 parameters.
ParameterSet vgg16();
/// Devlin et al., "BERT", NAACL 2019, base, uncased, with pooler and without a head; names of the
/// published checkpoint in Hugging Face's form: 109 482 240 parameters.
ParameterSet bert_base();
/// Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, small; the head is
/// tied to the token embedding and has no tensor of its own: 124 439 808 parameters.
ParameterSet gpt2_small();

/// By the names of the command line: resnet50, vgg16, bert-base, gpt2. Errors: bad_input, with the
/// names there are.
Result<ParameterSet> named_parameter_set(std::string_view name);

}  // namespace selmcast
