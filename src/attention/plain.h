// The plain loops behind regard::reference, in either precision: double is the
// public reference; float is what "a plain implementation" means in the error
// rule that tests hold the kernels to.
#pragma once

#include "regard/attend.h"

namespace regard::detail {

template <class T>
BasicAttendResult<T> plain_attend(const View<const T, 4>& q, const View<const T, 4>& k, const View<const T, 4>& v,
                                  const BasicAttendOptions<T>& options);

template <class T>
BasicAttendGradients<T> plain_attend_backward(const View<const T, 4>& dout, const View<const T, 4>& q,
                                              const View<const T, 4>& k, const View<const T, 4>& v,
                                              const BasicForward<T>& forward, const BasicAttendOptions<T>& options,
                                              const View<const T, 3>& dlse);

}  // namespace regard::detail
