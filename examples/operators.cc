// How to call operators on your own memory: defaults, optionals, a chosen implementation, an error.
//
// docs/the-library.md has the command that compiles this program.
#include <infini/ops/base/add.h>
#include <infini/ops/base/clamp.h>
#include <infini/ops/base/mean.h>

#include <cstdio>
#include <exception>
#include <optional>

using infini::ops::Add;
using infini::ops::Clamp;
using infini::ops::DataType;
using infini::ops::Mean;
using infini::ops::Tensor;

int main() {
  float x_data[2][3] = {{-1, 0, 1}, {2, 3, 4}};
  float y_data[3] = {10, 20, 30};
  float out_data[2][3];
  float row_means_data[2];
  // A tensor is a view: you still own the memory.
  const Tensor x(x_data, {2, 3}, DataType::kFloat32);
  const Tensor y(y_data, {3}, DataType::kFloat32);
  const Tensor out(out_data, {2, 3}, DataType::kFloat32);
  const Tensor row_means(row_means_data, {2}, DataType::kFloat32);

  // Inputs come first, then outs. The default of `alpha` is 1.
  Add::Call(x, y, out);
  std::printf("x + y       = %g ... %g\n", out_data[0][0], out_data[1][2]);
  Add::Call(x, y, 0.5, out);
  std::printf("x + y / 2   = %g ... %g\n", out_data[0][0], out_data[1][2]);

  // `min` is optional.
  Clamp::Call(x, std::nullopt, 2, out);
  std::printf("at most 2   = %g ... %g\n", out_data[0][0], out_data[1][2]);

  // An optional list needs a second pair of braces.
  Mean::Call(x, {{1}}, row_means);
  std::printf("row means   = %g, %g\n", row_means_data[0], row_means_data[1]);

  // The last braces select the implementation: slot 8 is PyTorch's.
  Add::Call(x, y, out, {8});
  std::printf("by slot 8   = %g ... %g\n", out_data[0][0], out_data[1][2]);

  try {
    Add::Call(x, row_means, out, {0});  // slot 0 is the library's own
  } catch (const std::exception& error) {
    std::printf("error: %s\n", error.what());
  }
}
