/* Errors that a network raises, as text. */
#ifndef TVMCONV_RAISED_H
#define TVMCONV_RAISED_H

/* Message of this thread's last call that failed, with the kind of error first. */
const char *tvmconv_raised(void);

#endif
